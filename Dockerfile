# One image for web and worker; compose.yaml says which of the two a container is.
FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    FLASK_APP=web PYTHONPATH=/app

WORKDIR /app
COPY requirements.lock ./
RUN pip install -r requirements.lock

COPY gunicorn.conf.py ./
COPY shared shared
COPY worker worker
COPY web web

RUN useradd --system --uid 10001 --no-create-home outlast
USER outlast

EXPOSE 8000
CMD ["gunicorn", "--bind", "0.0.0.0:8000"]
