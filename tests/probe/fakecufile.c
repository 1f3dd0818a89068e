/* fakecufile.c - the calls of libcufile that a probe makes, over plain pread and pwrite on "device" memory that is host
 * memory (see tests/oracle/fakecuda.c). For what NVIDIA's own library cannot show without a GPU: stream calls, which need
 * a kernel on one, and the errors of each interface.
 *
 *   FAKECUFILE_FAIL_AT   offset of a block that fails with EIO
 *   FAKECUFILE_SHORT_AT  offset of a block of which only 512 bytes are moved
 *   -DOLD                a library of before the batch and stream calls
 *
 * A batch tells of its blocks in the opposite order, one at a time.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { int err, cu_err; } E;
typedef struct { int type; union { int fd; void *p; } handle; void *ops; } D;

static E ok(void) { return (E){0, 0}; }
static int at(const char *name, off_t offset) { const char *e = getenv(name); return e && atoll(e) == offset; }
static ssize_t move(void *fh, int writes, char *to, size_t n, off_t offset)
{
    int fd = (int)(intptr_t)fh - 1;
    if (at("FAKECUFILE_FAIL_AT", offset)) { errno = EIO; return -1; }
    if (at("FAKECUFILE_SHORT_AT", offset)) n = 512;
    return writes ? pwrite(fd, to, n, offset) : pread(fd, to, n, offset);
}

#ifdef OLD
E cuFileGetVersion(int *v) { *v = 1050; return ok(); }
#else
E cuFileGetVersion(int *v) { *v = 1070; return ok(); }
#endif
E cuFileDriverOpen(void) { return ok(); }
E cuFileDriverClose(void) { return ok(); }
E cuFileHandleRegister(void **fh, D *d) { *fh = (void *)(intptr_t)(dup(d->handle.fd) + 1); return ok(); }
void cuFileHandleDeregister(void *fh) { close((int)(intptr_t)fh - 1); }
E cuFileBufRegister(void *p, size_t n, int f) { (void)p; (void)n; (void)f; return ok(); }
E cuFileBufDeregister(void *p) { (void)p; return ok(); }
ssize_t cuFileRead(void *fh, void *p, size_t n, off_t o, off_t b) { return move(fh, 0, (char *)p + b, n, o); }
ssize_t cuFileWrite(void *fh, void *p, size_t n, off_t o, off_t b) { return move(fh, 1, (char *)p + b, n, o); }

#ifndef OLD
E cuFileStreamRegister(void *s, unsigned f) { (void)s; return (E){f & ~15u ? 5022 : 0, 0}; }
E cuFileStreamDeregister(void *s) { (void)s; return ok(); }
static E in_stream(void *fh, int writes, char *p, size_t *n, off_t *o, off_t *b, ssize_t *moved)
{
    *moved = move(fh, writes, p + *b, *n, *o);
    if (*moved < 0) *moved = -errno;
    return ok();
}
E cuFileReadAsync(void *fh, void *p, size_t *n, off_t *o, off_t *b, ssize_t *m, void *s) { (void)s; return in_stream(fh, 0, p, n, o, b, m); }
E cuFileWriteAsync(void *fh, void *p, size_t *n, off_t *o, off_t *b, ssize_t *m, void *s) { (void)s; return in_stream(fh, 1, p, n, o, b, m); }

typedef struct { int mode; void *base; off_t offset, inside; size_t size; void *fh; int opcode; void *cookie; } P;
typedef struct { void *cookie; int status; size_t ret; } V;
struct batch { unsigned room, held; P params[256]; };
E cuFileBatchIOSetUp(void **b, unsigned n)
{
    if (n > 256) return (E){5022, 0};
    struct batch *made = calloc(1, sizeof *made); made->room = n; *b = made; return ok();
}
E cuFileBatchIOSubmit(struct batch *b, unsigned n, P *p, unsigned f)
{
    if (f || b->held + n > b->room) return (E){5037, 0};
    memcpy(b->params + b->held, p, n * sizeof *p); b->held += n; return ok();
}
E cuFileBatchIOGetStatus(struct batch *b, unsigned least, unsigned *n, V *v, struct timespec *t)
{
    (void)least; (void)t;
    if (!b->held || !*n) { *n = 0; return ok(); }
    P *p = &b->params[--b->held];
    ssize_t moved = move(p->fh, p->opcode, (char *)p->base + p->inside, p->size, p->offset);
    v->cookie = p->cookie; v->status = moved < 0 ? 0x40 : 0x10; v->ret = moved < 0 ? -errno : moved;
    *n = 1; return ok();
}
E cuFileBatchIOCancel(struct batch *b) { b->held = 0; return ok(); }
void cuFileBatchIODestroy(struct batch *b) { free(b); }
#endif
