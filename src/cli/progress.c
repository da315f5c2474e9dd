#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/terminal.h"

#define DRAW_EVERY_MS 100
#define BAR_MAX 24
#define QUICK_MS 300 /* what is over sooner is not worth a line */

void format_bytes(int64_t bytes, char *out, size_t size)
{
	static const char *const UNITS[] = { "B", "kB", "MB", "GB", "TB" };
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1000 && unit + 1 < ARRAY_SIZE(UNITS)) {
		value /= 1000;
		unit++;
	}
	snprintf(out, size, unit == 0 ? "%.0f %s" : "%.1f %s", value, UNITS[unit]);
}

static const char *verb_of(const char *step)
{
	static const char *const VERBS[][2] = { { "scan", "looking at files" },
						{ "stage", "staging" },
						{ "fetch", "fetching" },
						{ "apply", "applying" } };

	for (size_t i = 0; i < ARRAY_SIZE(VERBS); i++)
		if (str_equal(step, VERBS[i][0]))
			return VERBS[i][1];
	return "working";
}

static void put_bar(struct buf *line, int64_t done, int64_t total, int columns)
{
	int width = columns - 1 - (int)line->len - 4, filled; /* "  [" and "]" around it */

	width = MIN_OF(width, BAR_MAX);
	if (total <= 0 || width < 8)
		return;
	filled = (int)(MIN_OF(done, total) * width / total);
	buf_puts(line, "  [");
	for (int i = 0; i < width; i++)
		buf_putc(line, i < filled ? '#' : ' ');
	buf_puts(line, "]");
}

void progress_line(const json_t *now, int64_t ms, int columns, char *out, size_t size)
{
	int64_t files = json_int(now, "files", 0), all = json_int(now, "filesTotal", 0);
	int64_t bytes = json_int(now, "bytes", 0), whole = json_int(now, "bytesTotal", 0);
	_cleanup_buf_ struct buf line = { 0 };
	char text[32];

	buf_printf(&line, "%s  %lld", verb_of(json_str(now, "step")), (long long)files);
	if (all > 0)
		buf_printf(&line, "/%lld", (long long)all);
	buf_puts(&line, " files");
	if (bytes > 0 || whole > 0) {
		format_bytes(bytes, text, sizeof(text));
		buf_printf(&line, "  %s", text);
	}
	if (whole > 0) {
		format_bytes(whole, text, sizeof(text));
		buf_printf(&line, " of %s", text);
	}
	if (bytes > 0 && ms >= 1000) {
		format_bytes(bytes * 1000 / ms, text, sizeof(text));
		buf_printf(&line, "  %s/s", text);
	}
	put_bar(&line, whole > 0 ? bytes : files, whole > 0 ? whole : all, columns);
	snprintf(out, size, "%.*s", MAX_OF(columns - 1, 0), buf_str(&line));
}

void progress_begin(struct progress *progress, bool quiet)
{
	*progress = (struct progress){ .is_on = !quiet && isatty(STDERR_FILENO) };
}

void progress_show(struct progress *progress, const json_t *now)
{
	const char *step = json_str(now, "step");
	int64_t mono = boottime_ms();
	uint16_t rows, cols;
	char line[256];

	if (!progress->is_on || !step)
		return;
	if (!streq(progress->step, step)) {
		snprintf(progress->step, sizeof(progress->step), "%s", step);
		progress->begun = mono;
	}
	if (mono - progress->begun < QUICK_MS || mono - progress->drawn_at < DRAW_EVERY_MS)
		return;
	terminal_size(&rows, &cols);
	progress_line(now, mono - progress->begun, cols ? cols : 80, line, sizeof(line));
	fprintf(stderr, "\r\033[K%s", line);
	fflush(stderr);
	progress->drawn = true;
	progress->drawn_at = mono;
}

void progress_clear(struct progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}
