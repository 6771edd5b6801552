# A server with the model that comes along:  docker build -t multihead . && docker run -p 127.0.0.1:5000:5000 multihead
# Another one:  docker run -v /path/to/model:/model:ro -p 127.0.0.1:5000:5000 multihead /model
FROM python:3.12-slim
COPY . /src
# Without PyTorch: all of the page but the attention of every head works. "/src[serve,train]" adds it.
RUN pip install --no-cache-dir "/src[serve]" && rm -r /src
RUN useradd --create-home multihead
USER multihead
EXPOSE 5000
HEALTHCHECK CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5000/health')"
ENTRYPOINT ["multihead", "serve", "--host", "0.0.0.0"]
CMD ["en-de"]
