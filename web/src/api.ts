/** Requests to the server of `graftseg view` and `graftseg annotate`. */

export type Layer = "reference" | "prediction" | "uncertainty" | "difference";
export type CaseState = "open" | "accepted" | "skipped" | "rejected";
export type FinishAction = "accept" | "skip" | "reject";

/** A class of the segmentation. The background has the value 0 and no color. */
export interface ClassInfo {
  value: number;
  name: string;
  color: string | null;
}

/** A row of the case list. */
export interface CaseSummary {
  id: number;
  name: string;
  split: string;
  dice: number | null;
  uncertainty: number | null;
  rank: number | null;
  reasons: string[];
  layers: Layer[];
  state: CaseState;
  has_draft: boolean;
}

/** What the page shows: a run, a data folder, label maps or one scan. */
export interface Session {
  mode: "view" | "annotate";
  kind: "run" | "data" | "labels" | "scan";
  title: string;
  /** Identifies the opened folder across restarts of the server. */
  key?: string;
  classes: ClassInfo[];
  cases: CaseSummary[];
  has_report: boolean;
  is_live: boolean;
}

export type VoxelType = "uint8" | "int16" | "uint16" | "float32";

export interface Score {
  class: string;
  dice: number | null;
  hd95: number | null;
}

/** Geometry and scores of one case. */
export interface CaseDetails {
  id: number;
  name: string;
  shape: [number, number, number];
  voxel_type: VoxelType;
  spacing: [number, number, number];
  channels: number;
  window: [number, number];
  is_2d: boolean;
  is_placed: boolean;
  layers: Layer[];
  scores: Score[];
}

/** Whether the tab may draw on a case, and the number of the last stroke in its draft. */
export interface Opened {
  writable: boolean;
  seq: number;
}

/** The saved file (null if none), the number of changed voxels, and the case to annotate next. */
export interface Finished {
  file: string | null;
  changed: number;
  next: number | null;
}

/** A training that the page started: its state, its last lines of output, the new run, and a sentence on its gain. */
export interface Training {
  state: "idle" | "running" | "finished" | "failed";
  lines: string[];
  seconds: number;
  run: string | null;
  summary: string | null;
}

/** An error that the server reported: what is wrong and what to do. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, finding: string, remedy: string) {
    super(remedy ? `${finding}; ${remedy}` : finding);
    this.status = status;
    this.code = code;
  }
}

/** The server did not answer. */
export class OfflineError extends Error {}

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers: { "X-Graftseg": "1", ...init.headers }, cache: "no-store" });
  } catch (error) {
    throw new OfflineError(error instanceof Error ? error.message : String(error));
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as Partial<Record<"code" | "finding" | "remedy", string>>;
    return new ApiError(response.status, body.code ?? "", body.finding ?? response.statusText, body.remedy ?? "");
  } catch {
    return new ApiError(response.status, "", `the server answered ${response.status}`, "");
  }
}

async function get<T>(path: string): Promise<T> {
  return (await (await request(path)).json()) as T;
}

async function post<T>(path: string, body: unknown): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  return (await (await request(path, { method: "POST", headers, body: JSON.stringify(body) })).json()) as T;
}

export const getSession = (): Promise<Session> => get("/api/session");
export const getCase = (id: number): Promise<CaseDetails> => get(`/api/cases/${id}`);
export const openCase = (id: number, tab: string): Promise<Opened> => post(`/api/cases/${id}/open`, { tab });
export const startTraining = (): Promise<{ state: string }> => post("/api/train", {});
export const getTraining = (): Promise<Training> => get("/api/train");

export function finishCase(id: number, tab: string, seq: number, action: FinishAction): Promise<Finished> {
  return post(`/api/cases/${id}/finish`, { tab, seq, action });
}

export function resetCase(id: number, tab: string, seq: number): Promise<{ seq: number }> {
  return post(`/api/cases/${id}/reset`, { tab, seq });
}

/** Send the runs of one stroke. The server has stored the stroke when it answers. */
export async function postStroke(
  id: number,
  tab: string,
  seq: number,
  runs: Uint8Array<ArrayBuffer>,
): Promise<{ seq: number }> {
  const path = `/api/cases/${id}/strokes?tab=${encodeURIComponent(tab)}&seq=${seq}`;
  const headers = { "Content-Type": "application/octet-stream" };
  return (await (await request(path, { method: "POST", headers, body: runs })).json()) as { seq: number };
}

/** Load one volume of a case as the bytes of a NIfTI file. */
export async function getVolume(id: number, name: string, channel = 0): Promise<ArrayBuffer> {
  const query = channel > 0 ? `?channel=${channel}` : "";
  return (await request(`/api/cases/${id}/${name}.nii${query}`)).arrayBuffer();
}

/** Load the middle slices of a scan. */
export async function getCenter(id: number, channel: number): Promise<ArrayBuffer> {
  return (await request(`/api/cases/${id}/center?channel=${channel}`)).arrayBuffer();
}

/** Return the bytes of a scan as a stream. */
export async function openVolume(
  id: number,
  channel: number,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array>> {
  return (await request(`/api/cases/${id}/image.nii?channel=${channel}`, { signal })).body!;
}

/** Load the draft and the number of the last stroke that it contains. */
export async function getDraft(id: number): Promise<{ bytes: ArrayBuffer; seq: number }> {
  const response = await request(`/api/cases/${id}/draft.nii`);
  return { bytes: await response.arrayBuffer(), seq: Number(response.headers.get("X-Seq") ?? 0) };
}
