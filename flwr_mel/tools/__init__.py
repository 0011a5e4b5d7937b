"""The command line and the other tools around the library, which never imports them."""
