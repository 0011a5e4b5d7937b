"""A server and its devices as real processes: certificates, keys, bundles, what is started and how."""
