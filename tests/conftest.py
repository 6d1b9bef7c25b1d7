"""Makes ``builders`` importable from every test: pytest puts the folder of this file on the import path."""
