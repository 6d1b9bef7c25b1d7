# docker build -t habana_perf_tool . && docker run --rm -v "$PWD/runs:/data:ro" habana_perf_tool analyze .
FROM python:3.12-slim
COPY . /source
RUN pip install --no-cache-dir /source && rm -rf /source && useradd --create-home reader
USER reader
WORKDIR /data
ENTRYPOINT ["habana_perf_tool"]
