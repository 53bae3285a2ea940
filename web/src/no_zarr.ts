/** Stands in for the package zarrita in the bundle, because the viewer reads NIfTI only. */

const missing = undefined as never;
export { missing as FetchStore, missing as get, missing as open, missing as root, missing as slice };
