#include "client.h"

static void parses(const char *raw, const char *path)
{
	_cleanup_error_ struct error err = { 0 };
	struct url url;
	_cleanup_buf_ struct buf got = { 0 };

	if (url_parse(raw, &url, &err) < 0)
		fail_msg("%s: %s", raw, err.message);
	for (size_t i = 0; i < url.segments; i++)
		buf_printf(&got, "[%s]", url.segment[i]);
	for (size_t i = 0; i < url.queries; i++)
		buf_printf(&got, "{%s=%s}", url.query_key[i], url.query_value[i]);
	assert_string_equal(buf_str(&got), path);
	url_clear(&url);
}

static void refuses(const char *raw)
{
	_cleanup_error_ struct error err = { 0 };
	struct url url;

	if (url_parse(raw, &url, &err) == 0)
		fail_msg("%s was taken", raw);
	assert_int_equal(err.code, ERR_BAD_PATH);
	assert_int_equal(url.segments, 0);
}

static void a_path_becomes_decoded_segments(void **state)
{
	(void)state;
	parses("/", "");
	parses("/api/health", "[api][health]");
	parses("/a%20b/%C3%A9", "[a b][\xc3\xa9]");
	parses("/a+b", "[a+b]");
	parses("/a..b/.x", "[a..b][.x]");
	parses("/1/2/3/4/5/6/7/8/9/10/11/12", "[1][2][3][4][5][6][7][8][9][10][11][12]");
}

static void a_query_becomes_names_and_values(void **state)
{
	(void)state;
	parses("/x?", "[x]");
	parses("/x?a=1&b=", "[x]{a=1}{b=}");
	parses("/x?a", "[x]{a=}");
	parses("/x?a=%2Fetc%26&b=x+y%2B", "[x]{a=/etc&}{b=x y+}");
	parses("/x?a=b=c", "[x]{a=b=c}");
	parses("/x?a=/b?c", "[x]{a=/b?c}");
}

static void odd_paths_are_refused(void **state)
{
	static const char *const bad[] = {
		"",           "x",
		"*",          "http://localhost/x",
		"//",         "/a//b",
		"/a/",        "/.",
		"/..",        "/a/../b",
		"/%2e%2E",    "/a/...",
		"/%2F",       "/a%2fb",
		"/a%5Cb",     "/a\\b",
		"/%00",       "/a%00b",
		"/%",         "/%4",
		"/%zz",       "/a%g0",
		"/%0a",       "/%7F",
		"/\x01",      "/%ff",
		"/\xff",      "/%C3",
		"/%ED%A0%80", "/a#b",
		"/a b",       "/a ",
		"/%C0%AF",    "/1/2/3/4/5/6/7/8/9/10/11/12/13",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		refuses(bad[i]);
}

static void odd_queries_are_refused(void **state)
{
	static const char *const bad[] = {
		"/x?a=1&",
		"/x?&a=1",
		"/x?a=1&&b=2",
		"/x?=1",
		"/x?a=1&a=2",
		"/x?a=%00",
		"/x?a=%f",
		"/x?%ff=1",
		"/x?a=%0d",
		"/x?a=1#b",
		"/x?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		refuses(bad[i]);
	parses("/x?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p",
	       "[x]{a=}{b=}{c=}{d=}{e=}{f=}{g=}{h=}{i=}{j=}{k=}{l=}{m=}{n=}{o=}{p=}");
}

static void a_long_url_is_told_so(void **state)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_free_ char *raw = xmalloc(HTTP_MAX_URL + 2);
	struct url url;

	(void)state;
	memset(raw, 'a', HTTP_MAX_URL + 1);
	raw[0] = '/';
	raw[HTTP_MAX_URL + 1] = '\0';
	assert_int_equal(url_parse(raw, &url, &err), -1);
	assert_int_equal(err.code, ERR_URI_TOO_LONG);
	raw[HTTP_MAX_URL] = '\0';
	assert_int_equal(url_parse(raw, &url, &err), 0);
	url_clear(&url);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_path_becomes_decoded_segments),
		cmocka_unit_test(a_query_becomes_names_and_values),
		cmocka_unit_test(odd_paths_are_refused),
		cmocka_unit_test(odd_queries_are_refused),
		cmocka_unit_test(a_long_url_is_told_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
