/*
 * Tables, fields and JSON for people and programs.
 */
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

void print_json(const json_t *value)
{
	char *text = json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY);

	puts(text ? text : "null");
	free(text);
}

/* Names come from other people: a terminal must not obey them. */
void print_cell(FILE *to, const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p < 0x20 || *p == 0x7f)
			fprintf(to, "\\x%02x", *p);
		else
			fputc(*p, to);
	}
}

static const json_t *reach(const json_t *object, const char *key)
{
	char first[64];
	const char *dot = strchr(key, '.');

	if (!dot)
		return json_object_get(object, key);
	if ((size_t)(dot - key) >= sizeof(first))
		return NULL;
	memcpy(first, key, (size_t)(dot - key));
	first[dot - key] = 0;
	return reach(json_object_get(object, first), dot + 1);
}

/* What a person sees of a value; allocated. */
static char *cell_text(const json_t *value)
{
	if (!value || json_is_null(value))
		return xstrdup("-");
	if (json_is_string(value))
		return xstrdup(json_string_value(value));
	if (json_is_array(value)) {
		_cleanup_buf_ struct buf words = { 0 };
		size_t i;
		json_t *item;

		json_array_foreach (value, i, item) {
			_cleanup_free_ char *text = cell_text(item);

			buf_printf(&words, "%s%s", i ? " " : "", text);
		}
		return buf_steal(&words);
	}
	return json_text(value);
}

static void heading(const char *column, char out[32])
{
	const char *equals = strchr(column, '=');
	size_t len = MIN_OF((size_t)(equals - column), 31u);

	memcpy(out, column, len);
	out[len] = 0;
}

void print_table(const json_t *rows, const char *const *columns)
{
	size_t width[16] = { 0 }, count = 0, i;
	json_t *row;
	char name[32];

	for (; columns[count] && count < 16; count++) {
		heading(columns[count], name);
		width[count] = strlen(name);
	}
	json_array_foreach (rows, i, row) {
		for (size_t c = 0; c < count; c++) {
			_cleanup_free_ char *text =
				cell_text(reach(row, strchr(columns[c], '=') + 1));

			width[c] = MAX_OF(width[c], MIN_OF(strlen(text), 60u));
		}
	}
	for (size_t c = 0; c < count; c++) {
		heading(columns[c], name);
		printf("%-*s%s", c + 1 < count ? (int)width[c] : 0, name,
		       c + 1 < count ? "  " : "\n");
	}
	json_array_foreach (rows, i, row) {
		for (size_t c = 0; c < count; c++) {
			_cleanup_free_ char *text =
				cell_text(reach(row, strchr(columns[c], '=') + 1));
			size_t len = strlen(text);

			print_cell(stdout, text);
			if (c + 1 < count)
				printf("%*s", (int)(len < width[c] ? width[c] - len : 0) + 2, "");
		}
		putchar('\n');
	}
}

void print_fields(const json_t *object, const char *const *columns)
{
	char name[32];

	for (; *columns; columns++) {
		_cleanup_free_ char *text = cell_text(reach(object, strchr(*columns, '=') + 1));

		heading(*columns, name);
		printf("%-14s ", name);
		print_cell(stdout, text);
		putchar('\n');
	}
}
