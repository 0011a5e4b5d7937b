"""A NumPyClient whose config comes from on_fit_config_fn."""
