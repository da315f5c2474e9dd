#include "client.h"
#include "http/router.h"

static int never(void *server, struct request *request, struct response *response,
		 struct error *err)
{
	(void)server;
	(void)request;
	(void)response;
	return error_set(err, ERR_INTERNAL, "not called here");
}

static const struct route THINGS[] = {
	{ HTTP_GET, "/api/things", .run = never, .access = ACCESS_SIGNED_IN },
	{ HTTP_POST, "/api/things", .run = never, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/api/things/:id", .run = never, .access = ACCESS_SIGNED_IN },
	{ HTTP_GET, "/api/things/:id/parts/:part", .run = never, .access = ACCESS_SIGNED_IN },
	{ 0 },
};
static const struct route MORE[] = {
	{ HTTP_GET, "/api/things/new", .run = never, .access = ACCESS_SIGNED_IN },
	{ HTTP_DELETE, "/api/things/:name", .run = never, .access = ACCESS_SIGNED_IN },
	{ 0 },
};
static const struct route *const TABLES[] = { THINGS, MORE, NULL };

struct found {
	const struct route *route;
	char param[2][32];
	unsigned allowed;
};

static struct found find(enum http_method method, const char *path)
{
	struct router *router;
	struct url url;
	const char *param[4] = { 0 };
	struct found found = { 0 };

	assert_int_equal(router_new(TABLES, &router, NULL), 0);
	assert_int_equal(url_parse(path, &url, NULL), 0);
	found.route = router_find(router, method, &url, param, &found.allowed);
	for (int i = 0; i < 2; i++)
		snprintf(found.param[i], sizeof(found.param[i]), "%s", param[i] ? param[i] : "");
	url_clear(&url);
	router_free(router);
	return found;
}

static void names_in_the_path_become_parameters(void **state)
{
	struct found found = find(HTTP_GET, "/api/things/7/parts/a%20b");

	(void)state;
	assert_ptr_equal(found.route, &THINGS[3]);
	assert_string_equal(found.param[0], "7");
	assert_string_equal(found.param[1], "a b");
}

static void a_literal_wins_over_a_name(void **state)
{
	(void)state;
	assert_ptr_equal(find(HTTP_GET, "/api/things/new").route, &MORE[0]);
	assert_ptr_equal(find(HTTP_GET, "/api/things/newer").route, &THINGS[2]);
}

static void an_unknown_path_is_told_from_a_wrong_method(void **state)
{
	struct found wrong = find(HTTP_PATCH, "/api/things/7");
	struct found unknown = find(HTTP_GET, "/api/thing");
	char text[64];

	(void)state;
	assert_null(wrong.route);
	assert_int_equal(wrong.allowed, HTTP_GET | HTTP_DELETE);
	http_methods_text(wrong.allowed, text, sizeof(text));
	assert_string_equal(text, "GET, DELETE");
	assert_null(unknown.route);
	assert_int_equal(unknown.allowed, 0);
	assert_null(find(HTTP_GET, "/").route);
	assert_null(find(HTTP_GET, "/api/things/7/parts").route);
}

static void tables_that_cannot_be_are_refused(void **state)
{
	static const struct route twice[] = {
		{ HTTP_GET, "/a/:x", .run = never, .access = ACCESS_SIGNED_IN },
		{ HTTP_GET, "/a/:y", .run = never, .access = ACCESS_SIGNED_IN },
		{ 0 },
	};
	static const struct route many[] = {
		{ HTTP_GET, "/:a/:b/:c/:d/:e", .run = never, .access = ACCESS_SIGNED_IN },
		{ 0 },
	};
	static const struct route empty[] = {
		{ HTTP_GET, "/a", .run = NULL, .access = ACCESS_SIGNED_IN }, { 0 }
	};
	static const struct route for_whom[] = { { HTTP_GET, "/a", .run = never }, { 0 } };
	static const struct route about_what[] = {
		{ HTTP_GET, "/a", .run = never, .access = ACCESS_READ, .subject = SUBJECT_RUN },
		{ 0 },
	};
	const struct route *const bad[] = { twice, many, empty, for_whom, about_what };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_error_ struct error err = { 0 };
		const struct route *const tables[] = { bad[i], NULL };
		struct router *router = NULL;

		assert_int_equal(router_new(tables, &router, &err), -1);
		assert_int_equal(err.code, ERR_INTERNAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_in_the_path_become_parameters),
		cmocka_unit_test(a_literal_wins_over_a_name),
		cmocka_unit_test(an_unknown_path_is_told_from_a_wrong_method),
		cmocka_unit_test(tables_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
