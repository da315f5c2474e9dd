/*
 * One line of a rule file, compiled. What git does, also where gitignore(5) says less: the text up
 * to the first special character is compared literally, and a ** right behind it counts as one
 * between slashes.
 *
 * Matching takes time linear in name times pattern, whatever the pattern: all states a matcher
 * could be in are carried along, nothing is tried twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line with more of it behind its literal beginning matches nothing. */
#define IGNORE_STEPS_MAX 1024

enum ignore_op {
	OP_BYTE,  /* this one */
	OP_ANY,   /* any but a slash */
	OP_CLASS, /* one of a set, never a slash */
	OP_STAR,  /* any number, but no slash */
	OP_DEEP,  /* any number, slashes too */
	OP_SKIP,  /* a following OP_DEEP and its slash may stand for nothing */
};

struct ignore_step {
	uint8_t op;
	uint8_t byte;
	uint16_t set; /* index of the class */
};

struct ignore_pattern {
	bool negated, dir_only, by_name; /* by_name: the last segment alone is compared */
	bool never;                      /* malformed: matches nothing, as in git */
	bool by_suffix;                  /* the steps are one star; `text` is what must follow */
	char *text;                      /* what must be there literally: the beginning, or end */
	size_t text_len;
	struct ignore_step *steps;
	size_t step_count;
	uint64_t (*sets)[4];
	size_t set_count;
};

/* False: the line says nothing (blank, comment). The line may hold any bytes. */
bool ignore_pattern_parse(struct ignore_pattern *p, const char *line, size_t len);
void ignore_pattern_clear(struct ignore_pattern *p);
/* `name` is relative to the directory of the rule file; `base` the offset of its last segment. */
bool ignore_pattern_matches(const struct ignore_pattern *p, const char *name, size_t len,
			    size_t base, bool is_dir);
