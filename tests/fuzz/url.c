/* The URL parser: whatever the request line holds, a segment is never what a path must not have. */
#include <assert.h>
#include "base/text.h"
#include "http/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text)
{
	size_t len = strlen(text);

	assert(utf8_valid(text, len));
	for (size_t i = 0; i < len; i++)
		assert((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *raw = xstrndup((const char *)data, size);
	_cleanup_error_ struct error err = { 0 };
	struct url url;

	if (url_parse(raw, &url, &err) < 0) {
		assert(err.code == ERR_BAD_PATH || err.code == ERR_URI_TOO_LONG);
		return 0;
	}
	assert(url.segments <= HTTP_MAX_SEGMENTS && url.queries <= HTTP_MAX_QUERIES);
	for (size_t i = 0; i < url.segments; i++) {
		check_text(url.segment[i]);
		assert(url.segment[i][0] && !strpbrk(url.segment[i], "/\\"));
		assert(!streq(url.segment[i], ".") && !streq(url.segment[i], ".."));
	}
	for (size_t i = 0; i < url.queries; i++) {
		assert(url.query_key[i][0]);
		check_text(url.query_key[i]);
		check_text(url.query_value[i]);
	}
	url_clear(&url);
	return 0;
}
