#include "base/text.h"
#include "http/http.h"

/* The byte at raw[*i], unescaped; moves *i to its last character. Negative for a bad escape. */
static int unescape(const char *raw, size_t len, size_t *i)
{
	if (raw[*i] != '%')
		return (unsigned char)raw[*i];
	if (len - *i < 3)
		return -1;

	int high = hex_digit(raw[*i + 1]), low = hex_digit(raw[*i + 2]);

	*i += 2;
	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/*
 * Decodes one piece that was cut out of the raw text first, so that only a separator which stood
 * there unescaped ever separates. NULL with err set.
 */
static char *decode(const char *raw, size_t len, bool in_query, struct error *err)
{
	_cleanup_free_ char *out = xmalloc(len + 1);
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		bool plain = raw[i] != '%';
		int c = unescape(raw, len, &i);

		if (c < 0) {
			error_set(err, ERR_BAD_PATH, "the URL has a malformed %% escape");
			return NULL;
		}
		if (c < 0x20 || c == 0x7f || (plain && c == ' ')) {
			error_set(err, ERR_BAD_PATH,
				  "the URL has a space or a control character in it");
			return NULL;
		}
		if (!in_query && (c == '/' || c == '\\')) {
			error_set(err, ERR_BAD_PATH, "the path has an escaped slash in it");
			return NULL;
		}
		out[n++] = in_query && plain && c == '+' ? ' ' : (char)c;
	}
	out[n] = '\0';
	if (!utf8_valid(out, n)) {
		error_set(err, ERR_BAD_PATH, "the URL is not UTF-8");
		return NULL;
	}
	return steal(out);
}

static bool only_dots(const char *s)
{
	return *s && strspn(s, ".") == strlen(s);
}

static int parse_path(const char *raw, size_t len, struct url *out, struct error *err)
{
	const char *end = raw + len;

	if (!len || *raw != '/')
		return error_set(err, ERR_BAD_PATH, "the path must begin with a slash");
	if (len == 1)
		return 0;
	for (const char *p = raw + 1;; p++) {
		const char *slash = memchr(p, '/', (size_t)(end - p));
		size_t n = (size_t)((slash ? slash : end) - p);

		if (!n)
			return error_set(err, ERR_BAD_PATH, "the path has an empty segment");
		if (out->segments == HTTP_MAX_SEGMENTS)
			return error_set(err, ERR_BAD_PATH, "the path has more than %d segments",
					 HTTP_MAX_SEGMENTS);

		char *segment = decode(p, n, false, err);

		if (!segment)
			return -1;
		out->segment[out->segments++] = segment;
		if (only_dots(segment))
			return error_set(err, ERR_BAD_PATH, "the path has a segment of dots");
		if (!slash)
			return 0;
		p = slash;
	}
}

static int parse_pair(const char *raw, size_t len, struct url *out, struct error *err)
{
	const char *equals = memchr(raw, '=', len);
	size_t key_len = equals ? (size_t)(equals - raw) : len;

	if (!key_len)
		return error_set(err, ERR_BAD_PATH, "the query has a value without a name");
	if (out->queries == HTTP_MAX_QUERIES)
		return error_set(err, ERR_BAD_PATH, "the query has more than %d values",
				 HTTP_MAX_QUERIES);

	_cleanup_free_ char *key = decode(raw, key_len, true, err);

	if (!key)
		return -1;
	for (size_t i = 0; i < out->queries; i++)
		if (streq(out->query_key[i], key))
			return error_set(err, ERR_BAD_PATH, "the query names \"%.64s\" twice", key);

	char *value = equals ? decode(equals + 1, len - key_len - 1, true, err) : xstrdup("");

	if (!value)
		return -1;
	out->query_key[out->queries] = steal(key);
	out->query_value[out->queries++] = value;
	return 0;
}

static int parse_query(const char *raw, struct url *out, struct error *err)
{
	while (*raw) {
		size_t n = strcspn(raw, "&");

		if (parse_pair(raw, n, out, err) < 0)
			return -1;
		raw += n;
		if (*raw == '&' && !*++raw)
			return error_set(err, ERR_BAD_PATH, "the query ends with an ampersand");
	}
	return 0;
}

int url_parse(const char *raw, struct url *out, struct error *err)
{
	*out = (struct url){ 0 };
	if (strnlen(raw, HTTP_MAX_URL + 1) > HTTP_MAX_URL)
		return error_set(err, ERR_URI_TOO_LONG, "the URL is longer than %d bytes",
				 HTTP_MAX_URL);
	if (strchr(raw, '#'))
		return error_set(err, ERR_BAD_PATH, "the URL has a fragment");

	size_t path_len = strcspn(raw, "?");

	if (parse_path(raw, path_len, out, err) < 0 ||
	    (raw[path_len] && parse_query(raw + path_len + 1, out, err) < 0)) {
		url_clear(out);
		return -1;
	}
	return 0;
}

void url_clear(struct url *url)
{
	for (size_t i = 0; i < url->segments; i++)
		free(url->segment[i]);
	for (size_t i = 0; i < url->queries; i++) {
		free(url->query_key[i]);
		free(url->query_value[i]);
	}
	*url = (struct url){ 0 };
}
