"""Commands about a broker: ``serve``, ``topics``, ``groups``."""
