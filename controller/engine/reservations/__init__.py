"""Sets quota and capacity aside: head reservations and nominations."""
