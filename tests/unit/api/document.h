/*
 * The document, asked about one route.
 */
#pragma once

#include "api/server.h"
#include "base/text.h"

#define EACH_ROUTE(route)                                                                          \
	for (size_t table = 0; route_table_at(table); table++)                                     \
		for (const struct route *route = route_table_at(table); route->path; route++)

/* "/api/runs/:id" -> "/api/runs/{id}" */
static inline char *template_of(const char *path)
{
	_cleanup_buf_ struct buf out = { 0 };

	for (bool name = false; *path; path++) {
		if (name && *path == '/') {
			buf_putc(&out, '}');
			name = false;
		}
		buf_putc(&out, *path == ':' ? '{' : *path);
		name |= *path == ':';
		if (name && !path[1])
			buf_putc(&out, '}');
	}
	return buf_steal(&out);
}

static inline const json_t *find_operation(const json_t *document, const struct route *route)
{
	_cleanup_free_ char *path = template_of(route->path);
	const json_t *item = json_object_at(json_object_at(document, "paths"), path);
	const char *method = route->method == HTTP_GET     ? "get"
			     : route->method == HTTP_POST  ? "post"
			     : route->method == HTTP_PUT   ? "put"
			     : route->method == HTTP_PATCH ? "patch"
							   : "delete";

	return json_object_at(item, method);
}

/* Whether the document says that the route refuses something with this code. */
static inline bool tells_of(const json_t *document, const struct route *route, const char *code)
{
	json_t *responses = json_object_at(find_operation(document, route), "responses"), *response;
	_cleanup_free_ char *word = xasprintf("`%s`", code);
	const char *status;

	json_object_foreach (responses, status, response)
		if (json_str(response, "description") &&
		    strstr(json_str(response, "description"), word))
			return true;
	return false;
}
