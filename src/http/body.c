#include "base/text.h"
#include "http/http.h"

/* Counts what will become values, from above: every one but the first follows one of these. */
static size_t count_values(const char *data, size_t len)
{
	size_t count = 1;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		if (in_string) {
			if (data[i] == '\\')
				i++;
			else if (data[i] == '"')
				in_string = false;
		} else if (data[i] == '"') {
			in_string = true;
		} else if (data[i] == ',' || data[i] == '[' || data[i] == '{') {
			count++;
		}
	}
	return count;
}

json_t *body_parse(const char *data, size_t len, const struct field *fields, struct error *err)
{
	if (len > HTTP_MAX_BODY) {
		error_set(err, ERR_TOO_LARGE, "the body is longer than %d bytes", HTTP_MAX_BODY);
		return NULL;
	}
	if (count_values(data, len) > HTTP_MAX_BODY_VALUES) {
		error_set(err, ERR_VALIDATION, "the body has more than %d values in it",
			  HTTP_MAX_BODY_VALUES);
		return NULL;
	}

	_cleanup_json_ json_t *body = json_parse(data, len, err);

	if (!body)
		return NULL;
	if (!json_is_object(body)) {
		error_set(err, ERR_VALIDATION, "the body must be a JSON object");
		return NULL;
	}
	if (fields_check(fields, body, err) < 0)
		return NULL;
	return steal(body);
}
