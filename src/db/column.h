/*
 * The columns of a kind of record as data: one table, from which come the SQL of its statements,
 * the reader of a row, its JSON, the binds of INSERT and UPDATE (record/row.h) and its shape in the
 * description of the API (api/response_schemas.h). A column is added here, in the struct and in a
 * migration.
 */
#pragma once

#include <stddef.h>
#include <jansson.h>

enum column_type {
	COLUMN_ID,    /* char[ID_SIZE]; "" is NULL */
	COLUMN_TEXT,  /* char *; with `words` only those can be read */
	COLUMN_WORD,  /* an enum whose names are `words` */
	COLUMN_JSON,  /* json_t * */
	COLUMN_INT,   /* int64_t */
	COLUMN_TIME,  /* int64_t, milliseconds; 0 is none */
	COLUMN_BOOL,  /* bool */
	COLUMN_COUNT, /* int64_t; 0 is NULL in SQL and null in JSON */
	COLUMN_CODE,  /* int64_t; below 0 is NULL in SQL and null in JSON */
	COLUMN_STRV,  /* char **, an array of strings */
};

enum column_flags {
	COLUMN_INSERT = 1,   /* {insert} writes it */
	COLUMN_UPDATE = 2,   /* {set} writes it */
	COLUMN_NULLABLE = 4, /* NULL in SQL and null in JSON */
	COLUMN_PATCH = 8,    /* the key of a body goes over it as it is: row_patch */
	COLUMN_SPARSE = 16,  /* its key is left out instead of null */
	COLUMN_VIEW = 32,    /* no column and no member: a key that routes may add */
	COLUMN_OBJECT = 64,  /* what is not a JSON object is read as an empty one */
};
#define COLUMN_WRITE (COLUMN_INSERT | COLUMN_UPDATE)

struct column {
	const char *key;  /* in JSON, in the order of the table; NULL: not shown */
	const char *name; /* in SQL, or an expression; NULL: not stored. Both NULL end the table */
	enum column_type type;
	unsigned flags;
	size_t offset;                       /* of its member in the struct */
	const char *const *words;            /* NULL-terminated, or NULL */
	json_t *(*make)(const void *record); /* instead of a member: a key made of others */
	const char *shape;                   /* type in the API's description; NULL: by the type */
	const char *summary;                 /* there, or NULL */
};

/* The two that every record ends with. */
#define COLUMN_TIMES(type)                                                                         \
	{ "createdAt", "created_at", COLUMN_TIME, COLUMN_INSERT,                                   \
	  .offset = offsetof(type, created_at) },                                                  \
	{                                                                                          \
		"updatedAt", "updated_at", COLUMN_TIME, COLUMN_WRITE,                              \
			.offset = offsetof(type, updated_at)                                       \
	}
/* Who wrote what of it (record/trust.h). */
#define COLUMN_TRUST(type)                                                                         \
	{                                                                                          \
		NULL, "trust", COLUMN_JSON, COLUMN_WRITE | COLUMN_NULLABLE,                        \
			.offset = offsetof(type, trust)                                            \
	}
