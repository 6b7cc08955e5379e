"""Client of the Kubernetes API server, informers, leader election and the event recorder."""
