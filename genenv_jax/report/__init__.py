"""What `genenv report` is made of; reading, figures, tables and page."""
