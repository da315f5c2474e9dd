/* The body reader: what passes is an object that fits its table, and prints and parses the same. */
#include <assert.h>
#include "base/text.h"
#include "http/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const WORDS[] = { "one", "two", NULL };
static const struct field INNER[] = {
	{ .name = "word", .type = FIELD_STRING, .one_of = WORDS },
	{ .name = "deep", .type = FIELD_ANY },
	{ 0 },
};
static const struct field FIELDS[] = {
	{ .name = "name", .type = FIELD_STRING, .flags = FIELD_NONBLANK, .min = 1, .max = 20 },
	{ .name = "count", .type = FIELD_INT, .min = 1, .max = 100 },
	{ .name = "on", .type = FIELD_BOOL, .flags = FIELD_NULLABLE },
	{ .name = "inner", .type = FIELD_OBJECT, .fields = INNER },
	{ .name = "command", .type = FIELD_STRING_ARRAY, .min = 1, .max = 3 },
	{ .name = "env", .type = FIELD_STRING_MAP },
	{ .name = "id", .type = FIELD_UUID },
	{ 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *body = body_parse((const char *)data, size, FIELDS, &err);

	if (!body) {
		assert(err.code != ERR_NONE && error_http_status(err.code) < 500);
		if (err.details) {
			_cleanup_json_ json_t *details =
				json_parse(err.details, strlen(err.details), NULL);

			assert(details);
		}
		return 0;
	}

	_cleanup_free_ char *text = json_text(body);
	_cleanup_json_ json_t *again = body_parse(text, strlen(text), FIELDS, &err);

	assert(again && json_equal(body, again));
	if (json_state(body, "count") == JSON_IS_VALUE)
		assert(json_int(body, "count", 0) >= 1 && json_int(body, "count", 0) <= 100);
	return 0;
}
