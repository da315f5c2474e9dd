/*
 * From rows to records, for the files of this room: one row or a list of them, columns that hold
 * JSON, and the checks that names and references of every record go through.
 */
#pragma once

#include "record/record.h"

/* A kind of record: its struct and its columns (db/column.h), of which the first is the id. */
struct row_kind {
	const char *label; /* "Agent", as in `Agent not found` */
	size_t size;
	const struct column *columns;
};

/* Frees what a record holds and empties it. */
void row_clear(const struct row_kind *kind, void *record);
/* A deep copy. */
void row_copy(const struct row_kind *kind, void *to, const void *from);
json_t *row_json(const struct row_kind *kind, const void *record);
/* The row that a cursor stands on, of a statement that selects {*}; `out` is overwritten. */
int row_read(const struct row_kind *kind, struct cursor *cursor, void *out, struct error *err);
/*
 * Runs a statement with the record's {values}, or with its id and {set}. Returns the number of rows
 * written, or -1.
 */
int64_t row_insert_tx(struct tx *tx, const struct sql *sql, const void *record, struct error *err);
int64_t row_update_tx(struct tx *tx, const struct sql *sql, const void *record, struct error *err);
/*
 * Lays the keys of a body over the columns with COLUMN_PATCH: an absent key changes nothing, null
 * takes the value away. The body was checked; words are known.
 */
void row_patch(const struct row_kind *kind, void *record, const json_t *body);

/* The first row of a query as a record; ERR_NOT_FOUND when there is none. */
#define row_get_tx(tx, kind, sql, out, err, ...)                                                   \
	row_get_tx_((tx), (kind), (sql), B_ARRAY_(__VA_ARGS__), (out), (err))
int row_get_tx_(struct tx *tx, const struct row_kind *kind, const struct sql *sql,
		const struct bind *binds, void *out, struct error *err);
#define row_get(db, kind, sql, out, err, ...)                                                      \
	row_get_((db), (kind), (sql), B_ARRAY_(__VA_ARGS__), (out), (err))
int row_get_(struct db *db, const struct row_kind *kind, const struct sql *sql,
	     const struct bind *binds, void *out, struct error *err);
/* The first row of a query as the text of row_json, without a tree of values in between. */
#define row_text(db, kind, sql, err, ...)                                                          \
	row_text_((db), (kind), (sql), B_ARRAY_(__VA_ARGS__), (err))
char *row_text_(struct db *db, const struct row_kind *kind, const struct sql *sql,
		const struct bind *binds, struct error *err);
/* The row that a cursor stands on, as that text. */
void row_write(const struct row_kind *kind, struct cursor *cursor, struct buf *out);
/* Every row as JSON, in an array; the statement bounds how many. NULL on error. */
#define row_list(db, kind, sql, err, ...)                                                          \
	row_list_((db), (kind), (sql), B_ARRAY_(__VA_ARGS__), (err))
json_t *row_list_(struct db *db, const struct row_kind *kind, const struct sql *sql,
		  const struct bind *binds, struct error *err);

/*
 * One page of a list (record.h), as an array; fills query->next. The statement's parameters are the
 * company, the time and the id behind which the page begins, how many rows, and the filters; it
 * orders by created_at and id.
 */
#define row_page(db, kind, sql, query, err, ...)                                                   \
	({                                                                                         \
		struct list_query *_query = (query);                                               \
		struct list_start _start;                                                          \
		list_start(_query, &_start, (err)) < 0                                             \
			? NULL                                                                     \
			: row_page_((db), (kind), (sql), _query,                                   \
				    B_ARRAY_(B_TEXT(_query->company_id), B_INT(_start.time),       \
					     B_TEXT(_start.id), B_INT(_start.rows), __VA_ARGS__),  \
				    (err));                                                        \
	})
struct list_start {
	int64_t time, rows; /* one row more than asked for: it tells whether there are more */
	char id[ID_SIZE];
};
int list_start(struct list_query *query, struct list_start *out, struct error *err);
json_t *row_page_(struct db *db, const struct row_kind *kind, const struct sql *sql,
		  struct list_query *query, const struct bind *binds, struct error *err);

/* A JSON column, parsed: NULL column gives NULL. What is not JSON is ERR_DB naming the column. */
int col_json(struct cursor *cursor, int column, const char *name, json_t **out, struct error *err);
/* `unexpected <field> value: <value>` */
int unexpected_value(struct error *err, const char *field, const char *value);

/* 1 when the query finds a row, 0 when not, -1 on error. */
#define row_exists_tx(tx, sql, err, ...) row_exists_tx_((tx), (sql), B_ARRAY_(__VA_ARGS__), (err))
int row_exists_tx_(struct tx *tx, const struct sql *sql, const struct bind *binds,
		   struct error *err);
/*
 * That `id` (NULL or "": nothing to check) names a row of the company; else ERR_UNPROCESSABLE
 * `<label> not found.`. The query takes the id and the company's id.
 */
int reference_check_tx(struct tx *tx, const struct sql *sql, const char *label, const char *id,
		       const char *company_id, struct error *err);

/*
 * That no unfinished run and no open lease needs a record: else ERR_CONFLICT with details
 * {unfinishedRuns, openLeases}. The query takes the id and the company's id and counts both; it
 * repeats the conditions of the partial indexes.
 */
#define RUNS_UNFINISHED "status IN ('queued', 'running', 'scheduled_retry')"
/* Comparisons and not IN: see db/migrations.c. */
#define LEASES_OPEN "(status = 'active' OR status = 'pending_cleanup' OR status = 'retained')"
int unused_check_tx(struct tx *tx, const struct sql *sql, const char *label, const char *id,
		    const char *company_id, struct error *err);

/*
 * A name for people: trimmed, 1..max bytes, no control characters, which could forge a line in a
 * terminal. Allocated; NULL with ERR_VALIDATION.
 */
#define NAME_MAX_BYTES 200
char *name_trimmed(const char *label, const char *name, size_t max, struct error *err);

/* Gives a finished record to the caller, or leaves it to be cleared when nobody wants it. */
#define hand_over(out, record)                                                                     \
	({                                                                                         \
		__typeof__(record) *_record = &(record);                                           \
		if (out) {                                                                         \
			*(out) = *_record;                                                         \
			*_record = (__typeof__(record)){ 0 };                                      \
		}                                                                                  \
	})

/* The id the writer was given for what it makes, or a fresh one. */
void new_record_id(const struct writer *writer, char out[ID_SIZE]);
void patch_object(json_t **slot, const json_t *body, const char *key);
/* Lays a name of a body over what a record has; it is never taken away; see name_trimmed. */
int patch_name(char **slot, const char *label, const json_t *body, const char *key, size_t max,
	       struct error *err);
/* The keys of a patch in order, for the activity: {changedFields: [...]}. */
json_t *changed_fields(const json_t *body);

/* "" becomes JSON null. */
void json_put_id(json_t *object, const char *key, const char *id);
/* JSON text to store; NULL and JSON null give NULL, so that the column is NULL. */
char *json_column(const json_t *value);
