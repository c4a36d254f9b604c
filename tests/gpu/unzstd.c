/* Decompresses its input to its output: travels beside what tools/gpu_check.sh packs, linked
 * statically, for machines without zstd, or whose zstd refuses the window that finds equal kernels
 * in several programs. */
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

int main(void) {
  const size_t in_size = ZSTD_DStreamInSize(), out_size = ZSTD_DStreamOutSize();
  char *in = malloc(in_size), *out = malloc(out_size);
  ZSTD_DCtx* context = ZSTD_createDCtx();
  if (!in || !out || !context) return fprintf(stderr, "error: no memory\n"), 1;
  ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax,
                         ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  size_t left = 1, count;
  while ((count = fread(in, 1, in_size, stdin)) > 0) {
    ZSTD_inBuffer from = {in, count, 0};
    while (from.pos < from.size) {
      ZSTD_outBuffer to = {out, out_size, 0};
      left = ZSTD_decompressStream(context, &to, &from);
      if (ZSTD_isError(left)) return fprintf(stderr, "error: %s\n", ZSTD_getErrorName(left)), 1;
      if (fwrite(out, 1, to.pos, stdout) != to.pos) return perror("error: writing"), 1;
    }
  }
  if (left != 0) return fprintf(stderr, "error: the input ends inside a frame\n"), 1;
  return fflush(stdout) ? (perror("error: writing"), 1) : 0;
}
