/*
 * jansson reads a character at a time through three functions: half of what a command in a native
 * place took of the server was the JSON of two rows. This reads the plain JSON that we write
 * ourselves; all that is unusual or wrong is jansson's to judge, so that there is one judge.
 */
#include "base/json_plain.h"

#define DIGITS_MAX 18 /* whatever they are, they fit */

struct plain {
	const char *at, *end;
	int depth, values;
};

static json_t *read_value(struct plain *p);

/* The next character that is no white space; NUL at the end. */
static char look(struct plain *p)
{
	while (p->at < p->end &&
	       (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
		p->at++;
	return p->at < p->end ? *p->at : '\0';
}

static bool take(struct plain *p, char c)
{
	if (look(p) != c)
		return false;
	p->at++;
	return true;
}

static bool take_word(struct plain *p, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(p->end - p->at) < len || memcmp(p->at, word, len) != 0)
		return false;
	p->at += len;
	return true;
}

/* What is between the quotes, where it lies. */
static const char *read_quoted(struct plain *p, size_t *len)
{
	const char *start;

	if (!take(p, '"'))
		return NULL;
	start = p->at;
	*len = json_plain_length(start, (size_t)(p->end - start));
	p->at += *len;
	return take_word(p, "\"") ? start : NULL;
}

static json_t *read_string(struct plain *p)
{
	size_t len;
	const char *text = read_quoted(p, &len);

	return text ? json_stringn(text, len) : NULL;
}

static json_t *read_integer(struct plain *p)
{
	bool negative = take_word(p, "-");
	const char *start = p->at;
	json_int_t value = 0;

	while (p->at < p->end && *p->at >= '0' && *p->at <= '9' && p->at - start < DIGITS_MAX)
		value = value * 10 + (*p->at++ - '0');
	if (p->at == start || (*start == '0' && (negative || p->at - start > 1)))
		return NULL;
	/* Longer than that, or more than an integer. */
	if (p->at < p->end && strchr("0123456789.eE", *p->at))
		return NULL;
	return json_integer(negative ? -value : value);
}

static bool read_member(struct plain *p, json_t *object)
{
	size_t len, members = json_object_size(object);
	const char *key = read_quoted(p, &len);
	json_t *value = key && take(p, ':') ? read_value(p) : NULL;

	/* One that is there already would be replaced. */
	return value && json_object_setn_new(object, key, len, value) == 0 &&
	       json_object_size(object) > members;
}

static bool read_element(struct plain *p, json_t *array)
{
	json_t *value = read_value(p);

	return value && json_array_append_new(array, value) == 0;
}

typedef bool read_part_fn(struct plain *p, json_t *whole);

/* From behind its opening bracket to the closing one. */
static bool read_parts(struct plain *p, json_t *whole, read_part_fn *read_part, char close)
{
	if (take(p, close))
		return true;
	do {
		if (++p->values > JSON_MAX_VALUES || !read_part(p, whole))
			return false;
	} while (take(p, ','));
	return take(p, close);
}

static json_t *read_nested(struct plain *p, char open)
{
	_cleanup_json_ json_t *whole = open == '{' ? json_object() : json_array();

	p->at++;
	if (++p->depth > JSON_MAX_DEPTH)
		return NULL;
	if (open == '{' ? !read_parts(p, whole, read_member, '}')
			: !read_parts(p, whole, read_element, ']'))
		return NULL;
	p->depth--;
	return steal(whole);
}

static json_t *read_value(struct plain *p)
{
	char first = look(p);

	switch (first) {
	case '{':
	case '[':
		return read_nested(p, first);
	case '"':
		return read_string(p);
	case 't':
		return take_word(p, "true") ? json_true() : NULL;
	case 'f':
		return take_word(p, "false") ? json_false() : NULL;
	case 'n':
		return take_word(p, "null") ? json_null() : NULL;
	default:
		return read_integer(p);
	}
}

json_t *json_read_plain(const char *text, size_t len)
{
	struct plain p = { .at = text, .end = text + len, .values = 1 };
	json_t *value = read_value(&p);

	if (value && look(&p) == '\0' && p.at == p.end)
		return value;
	json_decref(value);
	return NULL;
}
