/*
 * From method and path to a route. The tables are compiled once; a literal segment is preferred to
 * a :name, so "/api/x/new" and "/api/x/:id" live together.
 */
#pragma once

#include "http/http.h"

struct router;

/* ERR_INTERNAL names a route that cannot be: malformed, too many names, or the same as another. */
int router_new(const struct route *const *tables, struct router **router, struct error *err);
void router_free(struct router *router);
/*
 * NULL when nothing matches. *allowed has the bits of the methods that the path itself would take:
 * 0 means there is no such path. `param` gets the values of the :names, borrowed from the URL.
 */
const struct route *router_find(const struct router *router, enum http_method method,
				const struct url *url, const char *param[4], unsigned *allowed);

/* What became of a request; route NULL when there was none for it. Never waits. */
void router_count(struct router *router, const struct route *route, int status);
/* The counts as Prometheus text: berth_http_requests_total{method, route, status}. */
void router_metrics(const struct router *router, struct buf *out);

const char *http_method_name(enum http_method method);
bool http_method_parse(const char *text, enum http_method *method); /* false: none of ours */
void http_methods_text(unsigned methods, char *out, size_t size);   /* "GET, POST" */
