"""Sets quota and capacity aside: head reservations with backfill, nominations and advance reservations."""
