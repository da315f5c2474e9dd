#include <stdatomic.h>
#include "base/metric.h"
#include "base/text.h"
#include "http/router.h"

#define MAX_PARAMS 4

/* Statuses that are counted by themselves; slot 0 is every other. */
static const int STATUSES[] = { 0,   101, 200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405,
				409, 413, 414, 415, 416, 422, 429, 500, 502, 503, 504, 507 };

struct counts {
	_Atomic uint64_t of[ARRAY_SIZE(STATUSES)];
};

struct entry {
	const struct route *route;
	struct url path; /* segments of the pattern, ":name" for those that vary */
	size_t literals;
	struct counts counts;
};

/* What tells most routes apart, side by side: every request looks through them. */
struct key {
	uint32_t segments;
	uint32_t head; /* hash of the second segment, which says what it is about; 0: it varies */
};

struct router {
	struct entry *entries;
	struct key *keys;
	const struct route **routes;
	size_t count;
	struct counts unrouted;
};

static struct key key_of(const struct url *url)
{
	struct key key = { .segments = (uint32_t)url->segments };

	if (url->segments > 1 && url->segment[1][0] != ':') {
		key.head = 2166136261u;
		for (const char *c = url->segment[1]; *c; c++)
			key.head = (key.head ^ (uint8_t)*c) * 16777619u;
		key.head |= 1;
	}
	return key;
}

static bool same_pattern(const struct url *a, const struct url *b)
{
	if (a->segments != b->segments)
		return false;
	for (size_t i = 0; i < a->segments; i++) {
		bool both_vary = a->segment[i][0] == ':' && b->segment[i][0] == ':';

		if (!both_vary && !streq(a->segment[i], b->segment[i]))
			return false;
	}
	return true;
}

static int add(struct router *router, const struct route *route, struct error *err)
{
	struct entry *entry = &router->entries[router->count];
	size_t params = 0;

	if (url_parse(route->path, &entry->path, err) < 0)
		return error_wrap(err, "route %s", route->path);
	router->keys[router->count] = key_of(&entry->path);
	router->routes[router->count] = route;
	router->count++;
	entry->route = route;
	for (size_t i = 0; i < entry->path.segments; i++)
		params += entry->path.segment[i][0] == ':';
	entry->literals = entry->path.segments - params;
	if (params > MAX_PARAMS || !route->run)
		return error_set(err, ERR_INTERNAL, "route %s has too many names or no handler",
				 route->path);
	if (route->access == ACCESS_UNSET || (route->subject != SUBJECT_NONE && !params))
		return error_set(err, ERR_INTERNAL, "route %s does not say who may use it",
				 route->path);
	for (size_t i = 0; i + 1 < router->count; i++)
		if (router->entries[i].route->method == route->method &&
		    same_pattern(&router->entries[i].path, &entry->path))
			return error_set(err, ERR_INTERNAL, "routes %s and %s are the same",
					 router->entries[i].route->path, route->path);
	return 0;
}

int router_new(const struct route *const *tables, struct router **out, struct error *err)
{
	struct router *router = xcalloc(1, sizeof(*router));
	size_t count = 0;

	for (size_t t = 0; tables[t]; t++)
		for (size_t r = 0; tables[t][r].path; r++)
			count++;
	router->entries = xcalloc(count + 1, sizeof(*router->entries));
	router->keys = xcalloc(count + 1, sizeof(*router->keys));
	router->routes = xcalloc(count + 1, sizeof(*router->routes));
	for (size_t t = 0; tables[t]; t++)
		for (size_t r = 0; tables[t][r].path; r++)
			if (add(router, &tables[t][r], err) < 0) {
				router_free(router);
				return -1;
			}
	*out = router;
	return 0;
}

void router_free(struct router *router)
{
	if (!router)
		return;
	for (size_t i = 0; i < router->count; i++)
		url_clear(&router->entries[i].path);
	free(router->entries);
	free(router->keys);
	free(router->routes);
	free(router);
}

static bool matches(const struct entry *entry, const struct url *url)
{
	if (entry->path.segments != url->segments)
		return false;
	for (size_t i = 0; i < url->segments; i++)
		if (entry->path.segment[i][0] != ':' &&
		    !streq(entry->path.segment[i], url->segment[i]))
			return false;
	return true;
}

const struct route *router_find(const struct router *router, enum http_method method,
				const struct url *url, const char *param[4], unsigned *allowed)
{
	const struct key wanted = key_of(url);
	const struct entry *best = NULL;

	*allowed = 0;
	for (size_t i = 0; i < router->count; i++) {
		const struct entry *entry = &router->entries[i];
		const struct key *key = &router->keys[i];

		if (key->segments != wanted.segments || (key->head && key->head != wanted.head) ||
		    !matches(entry, url))
			continue;
		*allowed |= entry->route->method;
		if (entry->route->method == method && (!best || entry->literals > best->literals))
			best = entry;
	}
	if (!best)
		return NULL;
	for (size_t i = 0, n = 0; i < url->segments; i++)
		if (best->path.segment[i][0] == ':')
			param[n++] = url->segment[i];
	return best->route;
}

static size_t status_slot(int status)
{
	for (size_t i = 1; i < ARRAY_SIZE(STATUSES); i++)
		if (STATUSES[i] == status)
			return i;
	return 0;
}

void router_count(struct router *router, const struct route *route, int status)
{
	struct counts *counts = &router->unrouted;

	for (size_t i = 0; route && i < router->count; i++)
		if (router->routes[i] == route)
			counts = &router->entries[i].counts;
	atomic_fetch_add_explicit(&counts->of[status_slot(status)], 1, memory_order_relaxed);
}

static void write_counts(struct buf *out, const struct counts *counts, const char *method,
			 const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(STATUSES); i++) {
		uint64_t count = atomic_load_explicit(&counts->of[i], memory_order_relaxed);
		_cleanup_buf_ struct buf labels = { 0 };
		char status[16] = "other";

		if (!count)
			continue;
		if (i)
			snprintf(status, sizeof(status), "%d", STATUSES[i]);
		metric_label(&labels, "method", method);
		metric_label(&labels, "route", path);
		metric_label(&labels, "status", status);
		metric_write_value(out, "berth_http_requests_total", buf_str(&labels),
				   (int64_t)count);
	}
}

void router_metrics(const struct router *router, struct buf *out)
{
	metric_write_head(out, "berth_http_requests_total", "counter",
			  "Requests that were answered");
	for (size_t i = 0; i < router->count; i++)
		write_counts(out, &router->entries[i].counts,
			     http_method_name(router->entries[i].route->method),
			     router->entries[i].route->path);
	write_counts(out, &router->unrouted, "", "");
}

static const struct {
	enum http_method method;
	const char *name;
} METHODS[] = {
#define X(c_name, wire, bit) { c_name, wire },
	HTTP_METHODS(X)
#undef X
};

const char *http_method_name(enum http_method method)
{
	for (size_t i = 0; i < ARRAY_SIZE(METHODS); i++)
		if (METHODS[i].method == method)
			return METHODS[i].name;
	return "?";
}

bool http_method_parse(const char *text, enum http_method *method)
{
	for (size_t i = 0; i < ARRAY_SIZE(METHODS); i++)
		if (streq(METHODS[i].name, text)) {
			*method = METHODS[i].method;
			return true;
		}
	return false;
}

void http_methods_text(unsigned methods, char *out, size_t size)
{
	_cleanup_buf_ struct buf text = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(METHODS); i++)
		if (methods & METHODS[i].method)
			buf_printf(&text, "%s%s", text.len ? ", " : "", METHODS[i].name);
	snprintf(out, size, "%s", buf_str(&text));
}
