#include "record/row.h"

#include "base/text.h"

int row_get_tx_(struct tx *tx, const struct row_kind *kind, const struct sql *sql,
		const struct bind *binds, void *out, struct error *err)
{
	_cleanup_cursor_ struct cursor cursor = { 0 };

	if (tx_query_(tx, &cursor, sql, binds, err) < 0)
		return -1;

	int r = cursor_next(&cursor, err);

	if (r < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "%s not found", kind->label);
	return row_read(kind, &cursor, out, err);
}

struct row_query {
	const struct row_kind *kind;
	const struct sql *sql;
	const struct bind *binds;
	void *record;
	bool filled;
	json_t *list;
};

static int get_in_snapshot(struct tx *tx, void *arg, struct error *err)
{
	struct row_query *q = arg;

	if (q->filled)
		row_clear(q->kind, q->record);
	q->filled = false;
	if (row_get_tx_(tx, q->kind, q->sql, q->binds, q->record, err) < 0)
		return -1;
	q->filled = true;
	return 0;
}

int row_get_(struct db *db, const struct row_kind *kind, const struct sql *sql,
	     const struct bind *binds, void *out, struct error *err)
{
	_cleanup_free_ void *record = xcalloc(1, kind->size);
	struct row_query q = { .kind = kind, .sql = sql, .binds = binds, .record = record };

	if (db_read(db, get_in_snapshot, &q, err) < 0) {
		if (q.filled)
			row_clear(kind, record);
		return -1;
	}
	memcpy(out, record, kind->size);
	return 0;
}

struct text_query {
	const struct row_kind *kind;
	const struct sql *sql;
	const struct bind *binds;
	struct buf out;
};

static int text_in_snapshot(struct tx *tx, void *arg, struct error *err)
{
	struct text_query *q = arg;
	_cleanup_cursor_ struct cursor cursor = { 0 };

	buf_reset(&q->out);
	if (tx_query_(tx, &cursor, q->sql, q->binds, err) < 0)
		return -1;

	int r = cursor_next(&cursor, err);

	if (r < 0)
		return -1;
	if (r == 0)
		return error_set(err, ERR_NOT_FOUND, "%s not found", q->kind->label);
	row_write(q->kind, &cursor, &q->out);
	return 0;
}

char *row_text_(struct db *db, const struct row_kind *kind, const struct sql *sql,
		const struct bind *binds, struct error *err)
{
	struct text_query q = { .kind = kind, .sql = sql, .binds = binds };

	buf_reserve(&q.out, 512);

	bool found = db_read(db, text_in_snapshot, &q, err) == 0;
	_cleanup_free_ char *text = buf_steal(&q.out);

	return found ? steal(text) : NULL;
}

static int list_in_snapshot(struct tx *tx, void *arg, struct error *err)
{
	struct row_query *q = arg;
	_cleanup_cursor_ struct cursor cursor = { 0 };
	int r;

	json_array_clear(q->list);
	if (tx_query_(tx, &cursor, q->sql, q->binds, err) < 0)
		return -1;
	while ((r = cursor_next(&cursor, err)) > 0) {
		if (row_read(q->kind, &cursor, q->record, err) < 0)
			return -1;
		json_array_append_new(q->list, row_json(q->kind, q->record));
		row_clear(q->kind, q->record);
	}
	return r;
}

json_t *row_list_(struct db *db, const struct row_kind *kind, const struct sql *sql,
		  const struct bind *binds, struct error *err)
{
	_cleanup_free_ void *record = xcalloc(1, kind->size);
	_cleanup_json_ json_t *list = json_array();
	struct row_query q = {
		.kind = kind, .sql = sql, .binds = binds, .record = record, .list = list
	};

	if (db_read(db, list_in_snapshot, &q, err) < 0)
		return NULL;
	return steal(list);
}

/* "<created_at>.<id>" */
int list_start(struct list_query *query, struct list_start *out, struct error *err)
{
	const char *dot = query->cursor ? strchr(query->cursor, '.') : NULL;
	_cleanup_free_ char *time = NULL;

	*out = (struct list_start){ .time = INT64_MIN };
	query->next[0] = '\0';
	if (query->limit <= 0 || query->limit > RECORD_LIST_MAX)
		query->limit = RECORD_LIST_MAX;
	out->rows = query->limit + 1;
	if (!query->cursor)
		return 0;
	time = dot ? xstrndup(query->cursor, (size_t)(dot - query->cursor)) : NULL;
	if (!time || !parse_i64(time, 0, INT64_MAX, &out->time) || !id_is_valid(dot + 1))
		return error_set(err, ERR_VALIDATION,
				 "the cursor is not one that a list has given out");
	id_copy(out->id, dot + 1);
	return 0;
}

struct page_query {
	struct row_query rows;
	int created;
	struct list_query *list;
};

/* Where created_at is among the columns of a statement with {*}. */
static int created_index(const struct row_kind *kind)
{
	int index = 0;

	for (const struct column *c = kind->columns; c->key || c->name; c++) {
		if (c->name && streq(c->name, "created_at"))
			break;
		index += c->name != NULL;
	}
	return index;
}

static int page_in_snapshot(struct tx *tx, void *arg, struct error *err)
{
	struct page_query *page = arg;
	struct row_query *q = &page->rows;
	_cleanup_cursor_ struct cursor cursor = { 0 };
	char last[LIST_CURSOR_SIZE] = "";
	int r;

	json_array_clear(q->list);
	page->list->next[0] = '\0';
	if (tx_query_(tx, &cursor, q->sql, q->binds, err) < 0)
		return -1;
	while ((r = cursor_next(&cursor, err)) > 0) {
		if ((int64_t)json_array_size(q->list) == page->list->limit) {
			snprintf(page->list->next, sizeof(page->list->next), "%s", last);
			return 0;
		}
		if (row_read(q->kind, &cursor, q->record, err) < 0)
			return -1;
		json_array_append_new(q->list, row_json(q->kind, q->record));
		row_clear(q->kind, q->record);
		snprintf(last, sizeof(last), "%lld.%s", (long long)col_int(&cursor, page->created),
			 col_text(&cursor, 0));
	}
	return r;
}

json_t *row_page_(struct db *db, const struct row_kind *kind, const struct sql *sql,
		  struct list_query *query, const struct bind *binds, struct error *err)
{
	_cleanup_free_ void *record = xcalloc(1, kind->size);
	_cleanup_json_ json_t *list = json_array();
	struct page_query page = {
		{ .kind = kind, .sql = sql, .binds = binds, .record = record, .list = list },
		created_index(kind),
		query
	};

	if (db_read(db, page_in_snapshot, &page, err) < 0)
		return NULL;
	return steal(list);
}

int unexpected_value(struct error *err, const char *field, const char *value)
{
	return error_set(err, ERR_DB, "unexpected %s value: %.100s", field, value ? value : "null");
}

int col_json(struct cursor *cursor, int column, const char *name, json_t **out, struct error *err)
{
	const char *text = col_text(cursor, column);

	*out = NULL;
	if (!text)
		return 0;
	*out = json_parse(text, strlen(text), NULL);
	if (!*out)
		return error_set(err, ERR_DB, "the stored %s is not JSON", name);
	return 0;
}

int row_exists_tx_(struct tx *tx, const struct sql *sql, const struct bind *binds,
		   struct error *err)
{
	_cleanup_cursor_ struct cursor cursor = { 0 };

	if (tx_query_(tx, &cursor, sql, binds, err) < 0)
		return -1;
	return cursor_next(&cursor, err);
}

int reference_check_tx(struct tx *tx, const struct sql *sql, const char *label, const char *id,
		       const char *company_id, struct error *err)
{
	if (!id_is_set(id))
		return 0;

	int r = row_exists_tx(tx, sql, err, B_TEXT(id), B_TEXT(company_id));

	if (r == 0)
		return error_set(err, ERR_UNPROCESSABLE, "%s not found.", label);
	return r < 0 ? -1 : 0;
}

int unused_check_tx(struct tx *tx, const struct sql *sql, const char *label, const char *id,
		    const char *company_id, struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	_cleanup_json_ json_t *details = json_object();
	int64_t runs, leases;

	if (tx_query(tx, &c, sql, err, B_TEXT(id), B_TEXT(company_id)) < 0 ||
	    cursor_next(&c, err) < 0)
		return -1;
	runs = col_int(&c, 0);
	leases = col_int(&c, 1);
	if (!runs && !leases)
		return 0;
	json_put_int(details, "unfinishedRuns", runs);
	json_put_int(details, "openLeases", leases);
	error_set(err, ERR_CONFLICT, "%s is in use: %lld unfinished runs, %lld open leases", label,
		  (long long)runs, (long long)leases);
	error_set_details(err, json_text(details));
	return -1;
}

char *name_trimmed(const char *label, const char *name, size_t max, struct error *err)
{
	_cleanup_free_ char *trimmed = str_trimmed(name ? name : "");
	size_t len = strlen(trimmed);

	if (len < 1 || len > max) {
		error_set(err, ERR_VALIDATION, "%s must be 1 to %zu bytes long", label, max);
		return NULL;
	}
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)trimmed[i];

		if (c < 0x20 || c == 0x7f) {
			error_set(err, ERR_VALIDATION, "%s must not hold control characters",
				  label);
			return NULL;
		}
	}
	return steal(trimmed);
}

void new_record_id(const struct writer *writer, char out[ID_SIZE])
{
	if (writer->id)
		id_copy(out, writer->id);
	else
		id_new(out);
}

void patch_object(json_t **slot, const json_t *body, const char *key)
{
	if (json_state(body, key) == JSON_IS_ABSENT)
		return;
	json_decref(*slot);
	*slot = json_deep_copy(json_object_at(body, key));
}

int patch_name(char **slot, const char *label, const json_t *body, const char *key, size_t max,
	       struct error *err)
{
	char *name;

	if (json_state(body, key) == JSON_IS_ABSENT)
		return 0;
	name = name_trimmed(label, json_str(body, key), max, err);
	if (!name)
		return -1;
	free(*slot);
	*slot = name;
	return 0;
}

static int compare_words(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

json_t *changed_fields(const json_t *body)
{
	size_t count = 0;
	_cleanup_free_ const char **keys =
		xcalloc(json_object_size(body) + 1, sizeof(const char *));
	json_t *details = json_object(), *fields = json_array(), *value;
	const char *key;

	json_object_foreach ((json_t *)body, key, value)
		keys[count++] = key;
	qsort(keys, count, sizeof(keys[0]), compare_words);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(fields, json_string(keys[i]));
	json_put_new(details, "changedFields", fields);
	return details;
}

void json_put_id(json_t *object, const char *key, const char *id)
{
	json_put_str(object, key, id_is_set(id) ? id : NULL);
}

char *json_column(const json_t *value)
{
	return !value || json_is_null(value) ? NULL : json_text(value);
}
