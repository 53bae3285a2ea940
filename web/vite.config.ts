import { defineConfig } from "vite";

/** Two builds of the same sources must be byte-identical: the names of files depend on their content only. */
export default defineConfig({
  base: "/static/",
  resolve: {
    // NiiVue can read zarr pyramids, which adds 1.4 MB of decoders. Our server sends NIfTI only.
    alias: { zarrita: "/src/no_zarr.ts" },
  },
  build: {
    outDir: "../src/graftseg/reporting/viewer/static",
    emptyOutDir: true,
    sourcemap: false,
    // The bundle contains other packages, whose licenses must go with it.
    license: { fileName: "licenses.md" },
    target: "es2022",
    chunkSizeWarningLimit: 2000,
  },
});
