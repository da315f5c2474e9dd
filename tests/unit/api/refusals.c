/*
 * What every route of its kind refuses, produced route by route from the document: who is unknown,
 * who may not, what is not there, bodies that are none, keys in use, leases that are over. What
 * only some routes refuse is in the tests of those; tests/openapi/refusals puts both together.
 */
#include "document.h"
#include "people.h"

#include "http/router.h"
#include "record/idempotency.h"

/* ---- a request that gets past the checks of its form ---- */

static json_t *least_object(const struct field *fields);

static json_t *least_value(const struct field *field)
{
	if (field->one_of)
		return json_string(field->one_of[0]);
	switch (field->type) {
	case FIELD_INT:
		return json_integer(field->min ? field->min : 1);
	case FIELD_BOOL:
		return json_true();
	case FIELD_OBJECT:
		return field->fields ? least_object(field->fields) : json_object();
	case FIELD_STRING_ARRAY:
		return json_pack("[s]", "true");
	case FIELD_STRING_MAP:
		return json_object();
	case FIELD_UUID:
		return json_string(NO_ID);
	default:
		return json_string(streq(field->name, "path") ? "/tmp" : "1");
	}
}

static json_t *least_object(const struct field *fields)
{
	json_t *object = json_object();

	for (const struct field *field = fields; field && field->name; field++)
		if (field->flags & FIELD_REQUIRED)
			json_put_new(object, field->name, least_value(field));
	return object;
}

static char *least_body(const struct route *route)
{
	_cleanup_json_ json_t *body = NULL;

	if (route->flags & ROUTE_RAW_BODY)
		return xstrdup("x");
	if (!route->body)
		return NULL;
	body = least_object(route->body);
	return json_text(body);
}

/* With what the query must have; `more` goes on from there. */
static char *least_path(const char *path, const struct route *route, const char *more)
{
	_cleanup_buf_ struct buf out = { 0 };
	char before = '?';

	buf_puts(&out, path);
	for (const struct field *field = route->query; field && field->name; field++) {
		if (!(field->flags & FIELD_REQUIRED))
			continue;
		buf_printf(&out, "%c%s=1", before, field->name);
		before = '&';
	}
	if (more)
		buf_printf(&out, "%c%s", before, more);
	return buf_steal(&out);
}

static struct call least_call(const struct route *route, const char *path, const char *body)
{
	return (struct call){
		.method = http_method_name(route->method),
		.path = path,
		.body = body,
		.type = route->flags & ROUTE_RAW_BODY ? "application/octet-stream" : NULL,
		.websocket = route->flags & ROUTE_WEBSOCKET,
	};
}

static void expect(struct people *p, enum who who, const struct call *call, enum error_code code)
{
	_cleanup_buf_ struct buf out = { 0 };
	int status = ask(p, who, call, &out);
	_cleanup_json_ json_t *answer = json_parse(buf_str(&out), out.len, NULL);

	if (status != error_http_status(code) || !answer ||
	    !str_equal(json_str(answer, "code"), error_code_name(code)))
		fail_msg("%s %s by %s: wanted %s, got %d %.500s", call->method, call->path,
			 WHO[who], error_code_name(code), status, buf_str(&out));
}

/* The plainest request of the route, about `h` (NULL: about nothing that is there). */
static void expect_least(struct people *p, enum who who, const struct route *route,
			 const struct holdings *h, const char *more, enum error_code code)
{
	_cleanup_free_ char *named = filled(route->path, h);
	_cleanup_free_ char *path = least_path(named, route, more);
	_cleanup_free_ char *body = least_body(route);
	struct call call = least_call(route, path, body);

	expect(p, who, &call, code);
}

#define EACH_THAT_TELLS_OF(document, route, code)                                                  \
	EACH_ROUTE(route)                                                                          \
	if (tells_of((document), route, error_code_name(code)))

/* ---- callers ---- */

static void whoever_is_unknown_is_refused_everywhere(void **state)
{
	_cleanup_json_ json_t *document = openapi_document();

	EACH_THAT_TELLS_OF(document, route, ERR_UNAUTHENTICATED)
	expect_least(*state, route->access == ACCESS_PUBLIC ? BAD_TOKEN : NOBODY, route,
		     &((struct people *)*state)->ours, NULL, ERR_UNAUTHENTICATED);
}

/* Somebody who may not, whatever the route is about. */
static enum who stranger_to(const struct route *route)
{
	if (route->subject == SUBJECT_COMPANY)
		return OUTSIDER;
	return route->access == ACCESS_ADMIN ? OWNER : VIEWER;
}

/* Where reading is all that it takes, what is another's is not there. */
static bool asks_for_a_right(const struct route *route)
{
	if (route->access == ACCESS_SIGNED_IN)
		return route->errors && strstr(route->errors, "forbidden");
	return route->access != ACCESS_READ || route->subject == SUBJECT_COMPANY ||
	       route->subject == SUBJECT_EXEC || route->method != HTTP_GET ||
	       route->flags & ROUTE_IN_PLACE;
}

static void whoever_may_not_is_refused_everywhere(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *document = openapi_document();
	struct holdings with_exec = p->ours;
	_cleanup_free_ char *others = xasprintf("userId=%s", p->user[OWNER]);

	PATH("/api/environment-leases/%s/exec?detach=1", p->ours.lease);
	_cleanup_json_ json_t *exec =
		call_json(&p->api, 201, CALL("POST", path, "{\"command\": [\"sleep\", \"60\"]}"));

	/* One of the company, whose token is for something else. */
	_cleanup_free_ char *member =
		xasprintf("/api/companies/%s/members/user/%s", p->ours.company, p->user[SCRAPER]);

	json_decref(call_json(&p->api, 200, CALL("PUT", member, "{\"role\": \"owner\"}")));
	/* What goes on in a lease is not for those who only read. */
	id_copy(with_exec.run, json_str(exec, "id"));
	EACH_THAT_TELLS_OF(document, route, ERR_FORBIDDEN)
	{
		if (!asks_for_a_right(route))
			expect_least(p, SCRAPER, route, &p->ours, NULL, ERR_FORBIDDEN);
		else if (route->access == ACCESS_SIGNED_IN && route->method == HTTP_GET)
			expect_least(p, VIEWER, route, &p->ours, others, ERR_FORBIDDEN);
		else if (route->access == ACCESS_SIGNED_IN)
			expect_least(p, AGENT, route, &p->ours, NULL, ERR_FORBIDDEN);
		else
			expect_least(p, stranger_to(route), route,
				     route->subject == SUBJECT_EXEC ? &with_exec : &p->ours, NULL,
				     ERR_FORBIDDEN);
	}
}

/* Entries of activity carry the run, so it must be one that the caller could work for. */
static void a_run_that_is_none_is_refused_everywhere(void **state)
{
	struct people *p = *state;

	EACH_ROUTE(route)
	{
		_cleanup_free_ char *named = filled(route->path, &p->ours);
		_cleanup_free_ char *path = least_path(named, route, NULL);
		_cleanup_free_ char *body = least_body(route);
		struct call call = least_call(route, path, body);

		call.header = "X-Paperclip-Run-Id: " NO_ID;
		if (route->access != ACCESS_PUBLIC)
			expect(p, LOCAL, &call, ERR_UNPROCESSABLE);
	}
}

static void what_is_not_there_is_not_found(void **state)
{
	_cleanup_json_ json_t *document = openapi_document();

	EACH_THAT_TELLS_OF(document, route, ERR_NOT_FOUND)
	expect_least(*state, LOCAL, route, NULL, NULL, ERR_NOT_FOUND);
}

/* Last of all: the address of this test is not heard for a while. */
static void who_guesses_tokens_has_to_wait_everywhere(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *document = openapi_document();
	int tries = 0;

	while (ask(p, BAD_TOKEN, CALL("GET", "/api/me"), NULL) == 401)
		assert_true(tries++ < 1000);
	assert_true(tries > 1);
	EACH_THAT_TELLS_OF(document, route, ERR_TOO_MANY)
	expect_least(p, BAD_TOKEN, route, &p->ours, NULL, ERR_TOO_MANY);
}

/* ---- bodies ---- */

static void expect_body(struct people *p, const struct route *route, const char *body,
			const char *type, enum error_code code)
{
	_cleanup_free_ char *named = filled(route->path, &p->ours);
	_cleanup_free_ char *path = least_path(named, route, NULL);
	struct call call = least_call(route, path, body);

	call.type = type;
	expect(p, LOCAL, &call, code);
}

static void bodies_that_are_none_are_refused_everywhere(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *document = openapi_document();

	EACH_THAT_TELLS_OF(document, route, ERR_INVALID_JSON)
	expect_body(p, route, "{", NULL, ERR_INVALID_JSON);
	EACH_THAT_TELLS_OF(document, route, ERR_MEDIA_TYPE)
	expect_body(p, route, "x", "text/plain", ERR_MEDIA_TYPE);
	EACH_THAT_TELLS_OF(document, route, ERR_VALIDATION)
	{
		if (route->body)
			expect_body(p, route, "{\"nonsense\": 1}", NULL, ERR_VALIDATION);
		if (route->query)
			expect_least(p, LOCAL, route, &p->ours, "nonsense=1", ERR_VALIDATION);
	}
}

static void bodies_that_are_too_long_are_refused_everywhere(void **state)
{
	_cleanup_json_ json_t *document = openapi_document();
	_cleanup_free_ char *body = xmalloc(HTTP_MAX_BODY + 2);

	memset(body, ' ', HTTP_MAX_BODY + 1);
	body[HTTP_MAX_BODY + 1] = '\0';
	EACH_THAT_TELLS_OF(document, route, ERR_TOO_LARGE)
	expect_body(*state, route, body, NULL, ERR_TOO_LARGE);
}

/* ---- keys ---- */

static void a_key_stands_for_one_request_everywhere(void **state)
{
	struct people *p = *state;
	struct server *server = p->api.server;
	_cleanup_json_ json_t *document = openapi_document();
	const struct actor local = { .type = "user", .id = "local" };

	EACH_THAT_TELLS_OF(document, route, ERR_IDEMPOTENCY_BUSY)
	{
		_cleanup_(idempotency_clear) struct idempotency idem = { 0 };
		_cleanup_error_ struct error err = { 0 };
		_cleanup_free_ char *path = filled(route->path, &p->ours);
		_cleanup_free_ char *name = xasprintf("POST %s", path);
		_cleanup_free_ char *body = least_body(route), *other = xasprintf("%s ", body);
		struct call call = least_call(route, path, body);

		/* Somebody else is at it. */
		if (idempotency_begin(server->db, &server->clock, &server->node,
				      route->subject == SUBJECT_NONE ? NULL : p->ours.company,
				      &local, name, "taken", body, strlen(body), &idem, &err) < 0)
			fail_msg("%s", err.message);
		call.key = "taken";
		expect(p, LOCAL, &call, ERR_IDEMPOTENCY_BUSY);
		call.body = other;
		expect(p, LOCAL, &call, ERR_IDEMPOTENCY);
	}
}

/* ---- leases ---- */

/* The plainest request with a generation in it, wherever the route wants it. */
static void expect_generation(struct people *p, const struct route *route, int64_t generation,
			      enum error_code code)
{
	_cleanup_json_ json_t *body = route->body ? least_object(route->body) : NULL;
	_cleanup_free_ char *number = xasprintf("generation=%lld", (long long)generation);
	_cleanup_free_ char *named = filled(route->path, &p->ours), *path = NULL, *text = NULL;
	bool in_body = false;

	for (const struct field *field = route->body; field && field->name; field++)
		in_body |= streq(field->name, "generation");
	if (in_body)
		json_put_int(body, "generation", generation);
	path = least_path(named, route, in_body ? NULL : number);
	text = body ? json_text(body) : least_body(route);

	struct call call = least_call(route, path, text);

	expect(p, LOCAL, &call, code);
}

static void a_lease_that_is_over_or_anothers_is_refused_everywhere(void **state)
{
	struct people *p = *state;
	_cleanup_json_ json_t *document = openapi_document();

	PATH("/api/environment-leases/%s", p->ours.lease);
	_cleanup_json_ json_t *lease = get(&p->api, path);
	_cleanup_free_ char *release = xasprintf("%s/release", path);
	int64_t generation = json_int(lease, "generation", 0);

	EACH_THAT_TELLS_OF(document, route, ERR_STALE_GENERATION)
	expect_generation(p, route, generation + 1, ERR_STALE_GENERATION);
	json_decref(post(&p->api, 200, release, "{}"));
	EACH_THAT_TELLS_OF(document, route, ERR_LEASE_ENDED)
	if (route->subject == SUBJECT_LEASE)
		expect_generation(p, route, generation, ERR_LEASE_ENDED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		people_test(whoever_is_unknown_is_refused_everywhere),
		people_test(whoever_may_not_is_refused_everywhere),
		people_test(a_run_that_is_none_is_refused_everywhere),
		people_test(what_is_not_there_is_not_found),
		people_test(bodies_that_are_none_are_refused_everywhere),
		people_test(bodies_that_are_too_long_are_refused_everywhere),
		people_test(a_key_stands_for_one_request_everywhere),
		people_test(a_lease_that_is_over_or_anothers_is_refused_everywhere),
		people_test(who_guesses_tokens_has_to_wait_everywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
