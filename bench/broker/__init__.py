"""The broker against Kafka, NATS and a C loop, through a published Kafka client."""
