#include "runlog/pack.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <zstd.h>
#include "base/buf.h"
#include "base/fd.h"

#define LEVEL 3
#define TABLE_MAGIC 0x184D2A5Eu /* a skippable frame */
#define FOOTER_MAGIC 0x8F92EAB1u
#define ENTRY_SIZE 8
#define HEAD_SIZE 8
#define FOOTER_SIZE 9
#define FRAMES_MAX (1u << 20)

struct pack {
	int fd;
	uint32_t count;
	int64_t *starts; /* of each frame in the file; one more for their end */
	int64_t size;    /* of the content */
	char *content;   /* of one frame; NULL: none */
	int64_t content_frame, content_len;
	int memory_fd; /* the same as a file; -1: none */
};

static void put_u32(struct buf *out, uint32_t value)
{
	uint32_t le = htole32(value);

	buf_append(out, &le, sizeof(le));
}

static uint32_t get_u32(const void *at)
{
	uint32_t le;

	memcpy(&le, at, sizeof(le));
	return le32toh(le);
}

static ssize_t read_at(int fd, void *buf, size_t len, int64_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)offset + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* ---- writing ---- */

struct packing {
	int from_fd, to_fd;
	ZSTD_CCtx *zstd;
	char *plain, *packed;
	struct buf table;
	uint32_t frames;
};

static void packing_clear(struct packing *p)
{
	ZSTD_freeCCtx(p->zstd);
	free(p->plain);
	free(p->packed);
	buf_free(&p->table);
}

static int pack_one(struct packing *p, int64_t offset, size_t len, struct error *err)
{
	ssize_t got = read_at(p->from_fd, p->plain, len, offset);

	if (got < 0)
		return error_errno(err, errno, "read a log to compress it");
	if ((size_t)got < len)
		return error_set(err, ERR_IO, "a log became shorter while it was compressed");

	size_t n = ZSTD_compress2(p->zstd, p->packed, ZSTD_compressBound((size_t)PACK_FRAME),
				  p->plain, len);

	if (ZSTD_isError(n))
		return error_set(err, ERR_IO, "zstd: %s", ZSTD_getErrorName(n));
	put_u32(&p->table, (uint32_t)n);
	put_u32(&p->table, (uint32_t)len);
	p->frames++;
	return fd_write_all(p->to_fd, p->packed, n, err);
}

static int write_table(struct packing *p, struct error *err)
{
	_cleanup_buf_ struct buf out = { 0 };

	put_u32(&out, TABLE_MAGIC);
	put_u32(&out, (uint32_t)p->table.len + FOOTER_SIZE);
	buf_append(&out, buf_str(&p->table), p->table.len);
	put_u32(&out, p->frames);
	buf_putc(&out, 0);
	put_u32(&out, FOOTER_MAGIC);
	return fd_write_all(p->to_fd, out.data, out.len, err);
}

int pack_write(int from_fd, int64_t len, int to_fd, const atomic_bool *stop, struct error *err)
{
	_cleanup_(packing_clear) struct packing p = { .from_fd = from_fd, .to_fd = to_fd };

	p.zstd = ZSTD_createCCtx();
	if (!p.zstd)
		return error_set(err, ERR_INTERNAL, "zstd cannot be used");
	ZSTD_CCtx_setParameter(p.zstd, ZSTD_c_compressionLevel, LEVEL);
	ZSTD_CCtx_setParameter(p.zstd, ZSTD_c_checksumFlag, 1);
	p.plain = xmalloc((size_t)PACK_FRAME);
	p.packed = xmalloc(ZSTD_compressBound((size_t)PACK_FRAME));
	for (int64_t at = 0; at < len; at += PACK_FRAME) {
		if (stop && atomic_load(stop))
			return error_set(err, ERR_CANCELLED, "compressing was broken off");
		if (pack_one(&p, at, (size_t)MIN_OF(len - at, PACK_FRAME), err) < 0)
			return -1;
	}
	return write_table(&p, err);
}

/* ---- reading ---- */

static int damaged(struct error *err)
{
	return error_set(err, ERR_IO, "a compressed log is damaged");
}

/* Every size in the table is checked against the file before it is believed. */
static int read_table(struct pack *pack, int64_t file_size, struct error *err)
{
	unsigned char footer[FOOTER_SIZE];

	if (file_size < HEAD_SIZE + FOOTER_SIZE ||
	    read_at(pack->fd, footer, sizeof(footer), file_size - FOOTER_SIZE) != FOOTER_SIZE ||
	    get_u32(footer + 5) != FOOTER_MAGIC || footer[4] != 0)
		return damaged(err);
	pack->count = get_u32(footer);
	if (pack->count > FRAMES_MAX ||
	    (int64_t)pack->count * ENTRY_SIZE > file_size - HEAD_SIZE - FOOTER_SIZE)
		return damaged(err);

	int64_t table_at = file_size - FOOTER_SIZE - (int64_t)pack->count * ENTRY_SIZE;
	size_t table_len = (size_t)pack->count * ENTRY_SIZE;
	_cleanup_free_ unsigned char *table = xmalloc(table_len + 1);

	if (read_at(pack->fd, table, table_len, table_at) != (ssize_t)table_len)
		return damaged(err);
	pack->starts = xcalloc((size_t)pack->count + 1, sizeof(*pack->starts));
	for (uint32_t i = 0; i < pack->count; i++) {
		int64_t packed = get_u32(table + (size_t)i * ENTRY_SIZE);
		int64_t plain = get_u32(table + (size_t)i * ENTRY_SIZE + 4);
		bool last = i + 1 == pack->count;

		if (packed > (int64_t)ZSTD_compressBound((size_t)PACK_FRAME) || plain < 1 ||
		    plain > PACK_FRAME || (!last && plain != PACK_FRAME))
			return damaged(err);
		pack->starts[i + 1] = pack->starts[i] + packed;
		pack->size += plain;
	}
	return pack->starts[pack->count] == table_at - HEAD_SIZE ? 0 : damaged(err);
}

int pack_open(int fd, struct pack **out, struct error *err)
{
	struct pack *pack = xcalloc(1, sizeof(*pack));
	struct stat st;
	int r = -1;

	pack->fd = fd;
	pack->memory_fd = -1;
	if (fstat(fd, &st) < 0)
		error_errno(err, errno, "look at a compressed log");
	else
		r = read_table(pack, st.st_size, err);
	if (r < 0) {
		pack_close(pack);
		return -1;
	}
	*out = pack;
	return 0;
}

void pack_rest(struct pack *pack)
{
	free(pack->content);
	pack->content = NULL;
	close_fdp(&pack->memory_fd);
}

void pack_close(struct pack *pack)
{
	if (!pack)
		return;
	pack_rest(pack);
	close_fdp(&pack->fd);
	free(pack->starts);
	free(pack);
}

int64_t pack_size(const struct pack *pack)
{
	return pack->size;
}

static int unpack(struct pack *pack, int64_t frame, struct error *err)
{
	if (pack->content && pack->content_frame == frame)
		return 0;

	size_t len = (size_t)(pack->starts[frame + 1] - pack->starts[frame]);
	int64_t want = MIN_OF(pack->size - frame * PACK_FRAME, PACK_FRAME);
	_cleanup_free_ char *packed = xmalloc(len + 1);

	pack_rest(pack);
	if (read_at(pack->fd, packed, len, pack->starts[frame]) != (ssize_t)len)
		return damaged(err);
	pack->content = xmalloc((size_t)want);

	size_t n = ZSTD_decompress(pack->content, (size_t)want, packed, len);

	if (ZSTD_isError(n) || (int64_t)n != want) {
		pack_rest(pack);
		return damaged(err);
	}
	pack->content_frame = frame;
	pack->content_len = want;
	return 0;
}

ssize_t pack_read(struct pack *pack, void *buf, size_t len, int64_t offset, struct error *err)
{
	if (offset < 0 || offset >= pack->size)
		return 0;
	if (unpack(pack, offset / PACK_FRAME, err) < 0)
		return -1;

	int64_t in = offset % PACK_FRAME;
	size_t n = MIN_OF(len, (size_t)(pack->content_len - in));

	memcpy(buf, pack->content + in, n);
	return (ssize_t)n;
}

int pack_frame(struct pack *pack, int64_t offset, struct pack_stretch *out, struct error *err)
{
	if (offset < 0 || offset >= pack->size)
		return error_set(err, ERR_INTERNAL, "a compressed log ends before %lld",
				 (long long)offset);
	if (unpack(pack, offset / PACK_FRAME, err) < 0)
		return -1;
	if (pack->memory_fd < 0) {
		pack->memory_fd = memfd_create("berth-log", MFD_CLOEXEC);
		if (pack->memory_fd < 0)
			return error_errno(err, errno, "cannot hold a part of a log");
		if (fd_write_all(pack->memory_fd, pack->content, (size_t)pack->content_len, err) <
		    0) {
			close_fdp(&pack->memory_fd);
			return -1;
		}
	}
	*out = (struct pack_stretch){ pack->memory_fd, offset / PACK_FRAME * PACK_FRAME,
				      pack->content_len };
	return 0;
}
