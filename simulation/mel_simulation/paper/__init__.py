"""The reproduction: the paper's statements, figures and tables, from results alone."""
