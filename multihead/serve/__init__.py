"""A translation server with LibreTranslate's HTTP interface, and a web page that shows the attention of the model.

In reading order: `options` (options and limits), `errors` (errors with their HTTP status), `server` (the process:
socket, signals, loading), `protocol` (connections), `app` (routes), `middleware` (headers, log, metrics), `access` (API
keys and rate limits), `requests` (reading and validating requests), `responses` (JSON, and the shape of every answer),
`openapi` (/openapi.json), `service` (translating texts and HTML, without HTTP), `text_threads` (work that grows with a
text), `batcher` (admission, and the threads that translate), `fair_queue` (whose turn it is), `pace` (how long
sentences take), `html` (tags around translated words), `languages` (detection), `lessons` (the page that explains a
model). `page/` is the web page.
"""
