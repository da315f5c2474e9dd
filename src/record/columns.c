/*
 * What a record's table of columns (db/column.h) says, done: reading a row, writing one, its JSON.
 */
#include <assert.h>
#include <ctype.h>
#include "base/text.h"
#include "record/row.h"

#define EACH_COLUMN(c, columns) for (const struct column *c = (columns); c->key || c->name; c++)
#define COLUMNS_MAX 40

/* The member of a record as what its type says. */
static void *slot_of(const struct column *c, const void *record)
{
	return (char *)(uintptr_t)record + c->offset;
}

static char **text_of(const struct column *c, const void *record)
{
	return slot_of(c, record);
}

static json_t **json_of(const struct column *c, const void *record)
{
	return slot_of(c, record);
}

static char ***strv_of(const struct column *c, const void *record)
{
	return slot_of(c, record);
}

static bool has_member(const struct column *c)
{
	return !c->make && !(c->flags & COLUMN_VIEW);
}

void row_clear(const struct row_kind *kind, void *record)
{
	EACH_COLUMN(c, kind->columns)
	{
		if (!has_member(c))
			continue;
		if (c->type == COLUMN_TEXT)
			free(*text_of(c, record));
		if (c->type == COLUMN_JSON)
			json_decref(*json_of(c, record));
		if (c->type == COLUMN_STRV)
			strv_free(*strv_of(c, record));
	}
	memset(record, 0, kind->size);
}

void row_copy(const struct row_kind *kind, void *to, const void *from)
{
	memcpy(to, from, kind->size);
	EACH_COLUMN(c, kind->columns)
	{
		if (!has_member(c))
			continue;
		if (c->type == COLUMN_TEXT)
			*text_of(c, to) = xstrdup(*text_of(c, from));
		if (c->type == COLUMN_JSON)
			*json_of(c, to) = json_deep_copy(*json_of(c, from));
		if (c->type == COLUMN_STRV)
			*strv_of(c, to) = strv_copy(*strv_of(c, from));
	}
}

/* ---- reading ---- */

static bool find_word(const struct column *c, const char *text, unsigned *index)
{
	for (unsigned i = 0; text && c->words[i]; i++) {
		if (!streq(c->words[i], text))
			continue;
		*index = i;
		return true;
	}
	return false;
}

/* The last word of the label, as in "unexpected workspace mode value". */
static int refuse_word(const struct row_kind *kind, const struct column *c, const char *text,
		       struct error *err)
{
	const char *space = strrchr(kind->label, ' ');
	_cleanup_free_ char *label = xasprintf("%s %s", space ? space + 1 : kind->label, c->name);

	label[0] = (char)tolower((unsigned char)label[0]);
	return unexpected_value(err, label, text);
}

static int read_json(const struct column *c, struct cursor *cursor, int index, void *record,
		     struct error *err)
{
	json_t **value = json_of(c, record);

	if (!(c->flags & COLUMN_OBJECT))
		return col_json(cursor, index, c->name, value, err);
	if (col_json(cursor, index, c->name, value, NULL) < 0 || !json_is_object(*value)) {
		json_decref(*value);
		*value = json_object();
	}
	return 0;
}

static int read_strv(const struct column *c, struct cursor *cursor, int index, void *record,
		     struct error *err)
{
	_cleanup_json_ json_t *value = NULL;

	if (col_json(cursor, index, c->name, &value, err) < 0)
		return -1;
	*strv_of(c, record) = json_to_strv(value);
	return *strv_of(c, record) ? 0 : unexpected_value(err, c->name, col_text(cursor, index));
}

static int read_column(const struct row_kind *kind, const struct column *c, struct cursor *cursor,
		       int index, void *record, struct error *err)
{
	unsigned word = 0;

	if (c->words && !find_word(c, col_text(cursor, index), &word))
		return refuse_word(kind, c, col_text(cursor, index), err);
	switch (c->type) {
	case COLUMN_ID:
		id_copy(slot_of(c, record), col_text(cursor, index));
		return 0;
	case COLUMN_TEXT:
		*text_of(c, record) = xstrdup(col_text(cursor, index));
		return 0;
	case COLUMN_WORD:
		*(unsigned *)slot_of(c, record) = word;
		return 0;
	case COLUMN_JSON:
		return read_json(c, cursor, index, record, err);
	case COLUMN_STRV:
		return read_strv(c, cursor, index, record, err);
	case COLUMN_CODE:
		*(int64_t *)slot_of(c, record) =
			col_is_null(cursor, index) ? -1 : col_int(cursor, index);
		return 0;
	case COLUMN_INT:
	case COLUMN_COUNT:
	case COLUMN_TIME:
		*(int64_t *)slot_of(c, record) = col_int(cursor, index);
		return 0;
	case COLUMN_BOOL:
		*(bool *)slot_of(c, record) = col_int(cursor, index) != 0;
		return 0;
	}
	return 0;
}

int row_read(const struct row_kind *kind, struct cursor *cursor, void *out, struct error *err)
{
	int index = 0;

	memset(out, 0, kind->size);
	EACH_COLUMN(c, kind->columns)
	{
		if (!c->name)
			continue;
		if (read_column(kind, c, cursor, index++, out, err) < 0) {
			row_clear(kind, out);
			return -1;
		}
	}
	return 0;
}

/* ---- JSON ---- */

static bool number_is_none(const struct column *c, const void *record)
{
	int64_t value = *(const int64_t *)slot_of(c, record);

	return c->type == COLUMN_CODE ? value < 0 : value == 0;
}

static void put_column(json_t *o, const struct column *c, const void *record)
{
	const void *slot = slot_of(c, record);

	switch (c->type) {
	case COLUMN_ID:
		json_put_id(o, c->key, slot);
		return;
	case COLUMN_TEXT:
		json_put_str(o, c->key, *text_of(c, record));
		return;
	case COLUMN_WORD:
		json_put_str(o, c->key, c->words[*(const unsigned *)slot]);
		return;
	case COLUMN_JSON:
		json_put_ref(o, c->key, *json_of(c, record));
		return;
	case COLUMN_INT:
		json_put_int(o, c->key, *(const int64_t *)slot);
		return;
	case COLUMN_TIME:
		json_put_time(o, c->key, *(const int64_t *)slot);
		return;
	case COLUMN_BOOL:
		json_put_bool(o, c->key, *(const bool *)slot);
		return;
	case COLUMN_COUNT:
	case COLUMN_CODE:
		json_put_new(o, c->key,
			     number_is_none(c, record) ? NULL
						       : json_integer(*(const int64_t *)slot));
		return;
	case COLUMN_STRV:
		json_put_new(o, c->key, json_from_strv(*strv_of(c, record)));
		return;
	}
}

static bool is_empty(const struct column *c, const void *record)
{
	return c->type == COLUMN_ID ? !id_is_set(slot_of(c, record)) : !*json_of(c, record);
}

json_t *row_json(const struct row_kind *kind, const void *record)
{
	json_t *o = json_object();

	EACH_COLUMN(c, kind->columns)
	{
		if (!c->key || (c->flags & COLUMN_VIEW) ||
		    ((c->flags & COLUMN_SPARSE) && is_empty(c, record)))
			continue;
		if (c->make)
			json_put_new(o, c->key, c->make(record));
		else
			put_column(o, c, record);
	}
	return o;
}

static void write_column(struct buf *out, struct cursor *cursor, int index, enum column_type type)
{
	char iso[TIME_ISO_SIZE];

	if (col_is_null(cursor, index) || (type == COLUMN_TIME && col_int(cursor, index) <= 0)) {
		buf_puts(out, "null");
		return;
	}
	switch (type) {
	case COLUMN_INT:
	case COLUMN_COUNT:
	case COLUMN_CODE:
		buf_printf(out, "%lld", (long long)col_int(cursor, index));
		return;
	case COLUMN_BOOL:
		buf_puts(out, col_int(cursor, index) ? "true" : "false");
		return;
	case COLUMN_TIME:
		time_iso(col_int(cursor, index), iso);
		json_write_str(out, iso);
		return;
	case COLUMN_JSON:
	case COLUMN_STRV:
		buf_puts(out, col_text(cursor, index));
		return;
	default:
		json_write_str(out, col_text(cursor, index));
	}
}

void row_write(const struct row_kind *kind, struct cursor *cursor, struct buf *out)
{
	int index = 0;

	EACH_COLUMN(c, kind->columns)
	{
		if (c->key && c->name) {
			buf_puts(out, index ? ",\"" : "{\"");
			buf_puts(out, c->key);
			buf_puts(out, "\":");
			write_column(out, cursor, index, c->type);
		}
		index += c->name != NULL;
	}
	buf_putc(out, '}');
}

/* ---- writing ---- */

struct column_binds {
	struct bind bind[COLUMNS_MAX + 2];
	size_t count;
	char *text[COLUMNS_MAX]; /* of JSON */
	size_t texts;
};

static const char *keep_json(struct column_binds *binds, const struct column *c, const void *record)
{
	const json_t *value = *json_of(c, record);

	if (!value || ((c->flags & COLUMN_NULLABLE) && json_is_null(value)))
		return NULL;
	return binds->text[binds->texts++] = json_text(value);
}

static const char *keep_strv(struct column_binds *binds, const struct column *c, const void *record)
{
	_cleanup_json_ json_t *value = json_from_strv(*strv_of(c, record));

	return binds->text[binds->texts++] = json_text(value);
}

static struct bind bind_column(struct column_binds *binds, const struct column *c,
			       const void *record)
{
	const void *slot = slot_of(c, record);

	switch (c->type) {
	case COLUMN_ID:
		return B_ID((const char *)slot);
	case COLUMN_TEXT:
		return B_TEXT(*text_of(c, record));
	case COLUMN_WORD:
		return B_TEXT(c->words[*(const unsigned *)slot]);
	case COLUMN_JSON:
		return B_TEXT(keep_json(binds, c, record));
	case COLUMN_TIME:
		if (c->flags & COLUMN_NULLABLE)
			return B_TIME(*(const int64_t *)slot);
		return B_INT(*(const int64_t *)slot);
	case COLUMN_INT:
		return B_INT(*(const int64_t *)slot);
	case COLUMN_BOOL:
		return B_BOOL(*(const bool *)slot);
	case COLUMN_COUNT:
	case COLUMN_CODE:
		return number_is_none(c, record) ? B_NULL : B_INT(*(const int64_t *)slot);
	case COLUMN_STRV:
		return B_TEXT(keep_strv(binds, c, record));
	}
	return B_NULL;
}

static int64_t write_row(struct tx *tx, const struct sql *sql, unsigned flag, const void *record,
			 struct error *err)
{
	struct column_binds binds = { .count = 0 };
	int64_t rows;

	if (flag == COLUMN_UPDATE)
		binds.bind[binds.count++] = bind_column(&binds, sql->columns, record);
	EACH_COLUMN(c, sql->columns)
	{
		if (!(c->flags & flag))
			continue;
		assert(binds.count <= COLUMNS_MAX);
		binds.bind[binds.count++] = bind_column(&binds, c, record);
	}
	binds.bind[binds.count] = (struct bind){ .type = BIND_END };
	rows = tx_exec_(tx, sql, binds.bind, err);
	for (size_t i = 0; i < binds.texts; i++)
		free(binds.text[i]);
	return rows;
}

int64_t row_insert_tx(struct tx *tx, const struct sql *sql, const void *record, struct error *err)
{
	return write_row(tx, sql, COLUMN_INSERT, record, err);
}

int64_t row_update_tx(struct tx *tx, const struct sql *sql, const void *record, struct error *err)
{
	return write_row(tx, sql, COLUMN_UPDATE, record, err);
}

static void patch_column(const struct column *c, void *record, const json_t *body)
{
	unsigned word;

	if (json_state(body, c->key) == JSON_IS_ABSENT)
		return;
	switch (c->type) {
	case COLUMN_ID:
		id_copy(slot_of(c, record), json_str(body, c->key));
		return;
	case COLUMN_TEXT:
		free(*text_of(c, record));
		*text_of(c, record) = xstrdup(json_str(body, c->key));
		return;
	case COLUMN_WORD:
		if (find_word(c, json_str(body, c->key), &word))
			*(unsigned *)slot_of(c, record) = word;
		return;
	case COLUMN_JSON:
		patch_object(json_of(c, record), body, c->key);
		return;
	default:
		assert(false && "no body has numbers, times or booleans of records");
	}
}

void row_patch(const struct row_kind *kind, void *record, const json_t *body)
{
	EACH_COLUMN(c, kind->columns)
	{
		if (c->flags & COLUMN_PATCH)
			patch_column(c, record, body);
	}
}
