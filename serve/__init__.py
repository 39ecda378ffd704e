"""A bundle behind OpenAI's HTTP interface, on this device, and a page to try it in.

    HTTP --gate--> application --fields, requests--> Asked --queue--> worker: Model --answers--> HTTP

fields         the fields of a JSON object, each taken once and checked; what is left over is refused
requests       a body -> what is asked for, typed
tools          functions a model may call, as a structure of its answer
answers        what is sent back: whole answers, chunks of a stream, errors
conversations  what was said, with the cache's contents, kept in memory; the prompt of the next answer
jobs           one request on its way between the server and a worker; the fair queue
pool           workers: a thread and a loaded model each
metrics        counts and times in Prometheus's text format
gate           what reaches the application at all: Host, Origin, key; and what every answer carries
bodies         a request's body, in bounded memory and time
browser        what it takes to run a model in the browser instead: addresses and their files
pages          the files of the pages
application    routes
server         the settings, and the program that listens
page/          the page: HTML, CSS, JavaScript
"""
