#include "record/redact.h"

#include <ctype.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"

/* How a key looks without case and punctuation: api_key, apiKey and API-Key are one word. */
static const char *const SECRET_WORDS[] = {
	"password", "passwd",    "passphrase",       "secret",     "token",
	"apikey",   "accesskey", "authorization",    "privatekey", "credential",
	"cookie",   "bearer",    "connectionstring",
};
#define KEY_MAX 128

static bool key_looks_secret(const char *key)
{
	char word[KEY_MAX];
	size_t len = 0;

	for (; *key; key++) {
		if (!isalnum((unsigned char)*key))
			continue;
		/* Nobody names a field like that; better nothing than a part of it. */
		if (len == sizeof(word) - 1)
			return true;
		word[len++] = (char)tolower((unsigned char)*key);
	}
	word[len] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(SECRET_WORDS); i++) {
		if (strstr(word, SECRET_WORDS[i]))
			return true;
	}
	return false;
}

static size_t base64url_span(const char *s)
{
	size_t n = 0;

	while (isalnum((unsigned char)s[n]) || s[n] == '-' || s[n] == '_')
		n++;
	return n;
}

/*
 * Length of the JSON web token that starts here, 0 if none does: base64url of `{"`, which is "eyJ",
 * then two dots with base64url between and behind them. The signature may be empty.
 */
static size_t jwt_span(const char *s)
{
	if (!str_starts(s, "eyJ"))
		return 0;

	size_t header = base64url_span(s);

	if (s[header] != '.')
		return 0;

	size_t payload = base64url_span(s + header + 1);
	size_t two = header + 1 + payload;

	if (payload == 0 || s[two] != '.')
		return 0;
	return two + 1 + base64url_span(s + two + 1);
}

static void write_string(struct buf *out, const char *text)
{
	_cleanup_buf_ struct buf clean = { 0 };

	if (!strstr(text, "eyJ")) {
		json_write_str(out, text);
		return;
	}
	while (*text) {
		size_t token = jwt_span(text);

		if (token)
			buf_puts(&clean, REDACTED);
		else
			buf_putc(&clean, *text);
		text += token ? token : 1;
	}
	json_write_str(out, buf_str(&clean));
}

static bool is_secret_ref(const json_t *value)
{
	const char *type = json_str(value, "type");

	return type && streq(type, "secret_ref");
}

static void write_value(struct buf *out, const json_t *value, int depth);

static void write_object(struct buf *out, const json_t *object, int depth)
{
	const char *separator = "{", *key;
	json_t *value;

	json_object_foreach ((json_t *)object, key, value) {
		/* A flag that something is secret tells nothing: hasPassword, tokenRequired. */
		bool tells = !json_is_boolean(value) && !json_is_null(value);

		buf_puts(out, separator);
		json_write_str(out, key);
		buf_putc(out, ':');
		if (tells && key_looks_secret(key) && !is_secret_ref(value))
			json_write_str(out, REDACTED);
		else
			write_value(out, value, depth + 1);
		separator = ",";
	}
	buf_puts(out, json_object_size(object) ? "}" : "{}");
}

static void write_array(struct buf *out, const json_t *array, int depth)
{
	size_t i;
	json_t *value;

	buf_putc(out, '[');
	json_array_foreach (array, i, value) {
		if (i > 0)
			buf_putc(out, ',');
		write_value(out, value, depth + 1);
	}
	buf_putc(out, ']');
}

static void write_plain(struct buf *out, const json_t *value)
{
	_cleanup_free_ char *text = json_text(value);

	buf_puts(out, text);
}

static void write_value(struct buf *out, const json_t *value, int depth)
{
	if (depth > JSON_MAX_DEPTH)
		json_write_str(out, REDACTED);
	else if (json_is_object(value) && !is_secret_ref(value))
		write_object(out, value, depth);
	else if (json_is_array(value))
		write_array(out, value, depth);
	else if (json_is_string(value))
		write_string(out, json_string_value(value));
	else
		write_plain(out, value);
}

char *redacted_text(const json_t *value)
{
	_cleanup_buf_ struct buf out = { 0 };

	buf_reserve(&out, 512);
	write_value(&out, value, 0);
	return buf_steal(&out);
}
