"""Serve bundles on this device over OpenAI's HTTP API, with a web page to try them.

    HTTP --gate--> application --fields, requests--> AnswerRequest --queue--> worker: Model --answers--> HTTP

fields         check the fields of a JSON object and refuse unknown ones
requests       convert a request body to a typed `AnswerRequest`
chat_messages  convert a request's messages to those of `Model.stream`
tools          functions that a model may call, as a structure of its answer
answers        response bodies: whole answers, chunks of a stream, errors
conversations  keep earlier answers and cache snapshots in memory; build the next prompt
jobs           one request between the server and a worker; the fair queue
pool           workers: one thread and one loaded model each
metrics        counts and times in Prometheus's text format
gate           check Host, Origin and key of each request; add headers to each response
bodies         read a request body in bounded memory and time
browser        URL paths and files for running a model in the browser
pages          routes of the page files
application    routes of the API
server         the HTTP server: settings, start, shutdown
page/          the web page: HTML, CSS, JavaScript
"""
