from prometheus_client.multiprocess import mark_process_dead

bind = "127.0.0.1:8000"
workers = 2


def child_exit(server, worker):
    """Let the gauges of a worker that is gone no longer count."""
    mark_process_dead(worker.pid)
