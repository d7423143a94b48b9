"""The environments that envhost brings along."""
