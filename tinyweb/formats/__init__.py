"""Model files in. Everything read here may be damaged or hostile: it is checked before it is believed."""
