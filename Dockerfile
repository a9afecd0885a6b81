# The demo: `docker build -t agentguard-demo . && docker run --rm -p 127.0.0.1:9464:9464 agentguard-demo`
FROM python:3.13.9-slim-trixie AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY otel_agentguard otel_agentguard
COPY dashboards dashboards
RUN python -m venv /app && /app/bin/pip install --no-cache-dir . && /app/bin/pip uninstall --yes pip

FROM python:3.13.9-slim-trixie
RUN useradd --system --uid 10001 --no-create-home agent
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9464/metrics', timeout=3)"]
CMD ["otel-agentguard", "demo", "--host", "0.0.0.0"]
