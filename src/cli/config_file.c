#include "cli/config_file.h"
#include <errno.h>
#include <fcntl.h>
#include <yaml.h>
#include "base/fd.h"
#include "base/text.h"

#define MAX_DEPTH 16

struct reading {
	const char *path;
	yaml_parser_t parser;
	size_t values;
	int *item_lines; /* of the list that is the value of a key at the top */
	size_t items;
};

static int complain(const struct reading *r, const yaml_mark_t *mark, struct error *err,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static int complain(const struct reading *r, const yaml_mark_t *mark, struct error *err,
		    const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	error_setv(err, ERR_VALIDATION, fmt, ap);
	va_end(ap);
	return error_wrap(err, "%s:%zu", r->path, mark->line + 1);
}

/* The next event, which the caller deletes; what we do not speak is refused here. */
static int next(struct reading *r, yaml_event_t *event, struct error *err)
{
	const yaml_parser_t *p = &r->parser;

	if (!yaml_parser_parse(&r->parser, event))
		return complain(r, &p->problem_mark, err, "%s",
				p->problem ? p->problem : "this is not YAML");
	if (++r->values > JSON_MAX_VALUES)
		return complain(r, &event->start_mark, err, "the file is too long");
	if (event->type == YAML_ALIAS_EVENT ||
	    (event->type == YAML_SCALAR_EVENT && event->data.scalar.anchor) ||
	    (event->type == YAML_SEQUENCE_START_EVENT && event->data.sequence_start.anchor) ||
	    (event->type == YAML_MAPPING_START_EVENT && event->data.mapping_start.anchor))
		return complain(r, &event->start_mark, err,
				"anchors and aliases are not supported");
	if ((event->type == YAML_SCALAR_EVENT && event->data.scalar.tag) ||
	    (event->type == YAML_SEQUENCE_START_EVENT && event->data.sequence_start.tag) ||
	    (event->type == YAML_MAPPING_START_EVENT && event->data.mapping_start.tag))
		return complain(r, &event->start_mark, err, "tags are not supported");
	return 0;
}

/* Only what has one reading in every version of YAML; yes, no, on and off are text. */
static json_t *scalar(const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	int64_t number;

	if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
		if (streq(text, "true") || streq(text, "false"))
			return json_boolean(streq(text, "true"));
		if (streq(text, "null") || streq(text, "~") || !*text)
			return json_null();
		if (parse_i64(text, INT64_MIN, INT64_MAX, &number) && text[0] != '+')
			return json_integer(number);
	}
	return json_string(text);
}

static int read_value(struct reading *r, const yaml_event_t *event, int depth, json_t **out,
		      struct error *err);

static int read_sequence(struct reading *r, int depth, json_t *list, struct error *err)
{
	for (;;) {
		_cleanup_(yaml_event_delete) yaml_event_t event = { 0 };
		json_t *value;

		if (next(r, &event, err) < 0)
			return -1;
		if (event.type == YAML_SEQUENCE_END_EVENT)
			return 0;
		if (depth == 0) {
			r->item_lines =
				xreallocarray(r->item_lines, r->items + 1, sizeof(*r->item_lines));
			r->item_lines[r->items++] = (int)event.start_mark.line + 1;
		}
		if (read_value(r, &event, depth + 1, &value, err) < 0)
			return -1;
		json_array_append_new(list, value);
	}
}

static int read_mapping(struct reading *r, int depth, json_t *object, struct error *err)
{
	for (;;) {
		_cleanup_(yaml_event_delete) yaml_event_t key = { 0 }, event = { 0 };
		const char *name;
		json_t *value;

		if (next(r, &key, err) < 0)
			return -1;
		if (key.type == YAML_MAPPING_END_EVENT)
			return 0;
		if (key.type != YAML_SCALAR_EVENT)
			return complain(r, &key.start_mark, err, "a key must be a word");
		name = (const char *)key.data.scalar.value;
		if (strlen(name) != key.data.scalar.length)
			return complain(r, &key.start_mark, err, "a key has a strange character");
		if (json_object_get(object, name))
			return complain(r, &key.start_mark, err, "%.100s is given twice", name);
		if (next(r, &event, err) < 0 || read_value(r, &event, depth + 1, &value, err) < 0)
			return -1;
		json_put_new(object, name, value);
	}
}

static int read_value(struct reading *r, const yaml_event_t *event, int depth, json_t **out,
		      struct error *err)
{
	_cleanup_json_ json_t *value = NULL;

	*out = NULL;
	if (depth > MAX_DEPTH)
		return complain(r, &event->start_mark, err, "nested too deeply");
	if (event->type == YAML_SCALAR_EVENT) {
		value = scalar(event);
		if (!value)
			return complain(r, &event->start_mark, err, "this text is not UTF-8");
	} else if (event->type == YAML_SEQUENCE_START_EVENT) {
		value = json_array();
		if (read_sequence(r, depth, value, err) < 0)
			return -1;
	} else if (event->type == YAML_MAPPING_START_EVENT) {
		value = json_object();
		if (read_mapping(r, depth, value, err) < 0)
			return -1;
	} else {
		return complain(r, &event->start_mark, err, "a value is missing");
	}
	*out = steal(value);
	return 0;
}

static int add_value(struct config_file *file, struct reading *r, const yaml_event_t *key,
		     json_t *value, struct error *err)
{
	const char *name = (const char *)key->data.scalar.value;

	if (config_file_find(file, name)) {
		json_decref(value);
		return complain(r, &key->start_mark, err, "%.100s is given twice", name);
	}
	file->values = xreallocarray(file->values, file->count + 1, sizeof(*file->values));
	file->values[file->count++] = (struct config_value){
		.key = xstrdup(name),
		.line = (int)key->start_mark.line + 1,
		.value = value,
		.item_lines = steal(r->item_lines),
	};
	r->items = 0;
	return 0;
}

static int read_top(struct reading *r, struct config_file *file, struct error *err)
{
	for (;;) {
		_cleanup_(yaml_event_delete) yaml_event_t key = { 0 }, event = { 0 };
		json_t *value;

		if (next(r, &key, err) < 0)
			return -1;
		if (key.type == YAML_MAPPING_END_EVENT)
			return 0;
		if (key.type != YAML_SCALAR_EVENT)
			return complain(r, &key.start_mark, err, "a key must be a word");
		if (next(r, &event, err) < 0 || read_value(r, &event, 0, &value, err) < 0 ||
		    add_value(file, r, &key, value, err) < 0)
			return -1;
	}
}

/* One document with one mapping; a file of comments alone says nothing, which is fine. */
static int read_stream(struct reading *r, struct config_file *file, struct error *err)
{
	bool seen = false;

	for (;;) {
		_cleanup_(yaml_event_delete) yaml_event_t event = { 0 };

		if (next(r, &event, err) < 0)
			return -1;
		if (event.type == YAML_STREAM_END_EVENT)
			return 0;
		if (event.type == YAML_STREAM_START_EVENT || event.type == YAML_DOCUMENT_END_EVENT)
			continue;
		if (event.type == YAML_DOCUMENT_START_EVENT) {
			if (seen)
				return complain(r, &event.start_mark, err,
						"there is a second document in the file");
			seen = true;
			continue;
		}
		if (event.type == YAML_SCALAR_EVENT && event.data.scalar.length == 0)
			continue;
		if (event.type != YAML_MAPPING_START_EVENT)
			return complain(r, &event.start_mark, err, "`key: value` is missing here");
		if (read_top(r, file, err) < 0)
			return -1;
	}
}

int config_file_read(const char *path, struct config_file *file, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	struct reading r = { .path = path };
	int result;

	*file = (struct config_file){ .path = xstrdup(path) };
	if (file_read(AT_FDCWD, path, &text, CONFIG_MAX_BYTES, err) < 0) {
		config_file_clear(file);
		return err && err->errnum == ENOENT ? error_recode(err, ERR_NOT_FOUND) : -1;
	}
	if (!yaml_parser_initialize(&r.parser)) {
		config_file_clear(file);
		return error_set(err, ERR_INTERNAL, "no memory for the config file");
	}
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)buf_str(&text), text.len);
	result = read_stream(&r, file, err);
	free(r.item_lines);
	yaml_parser_delete(&r.parser);
	if (result < 0)
		config_file_clear(file);
	return result;
}

void config_file_clear(struct config_file *file)
{
	for (size_t i = 0; i < file->count; i++) {
		free(file->values[i].key);
		json_decref(file->values[i].value);
		free(file->values[i].item_lines);
	}
	free(file->values);
	free(file->path);
	*file = (struct config_file){ 0 };
}

const struct config_value *config_file_find(const struct config_file *file, const char *key)
{
	for (size_t i = 0; i < file->count; i++)
		if (streq(file->values[i].key, key))
			return &file->values[i];
	return NULL;
}
