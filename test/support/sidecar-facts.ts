/** What a running sidecar says and costs. */
import { readdirSync, readFileSync } from 'node:fs';
import type { BoundName } from '../../proxy/bounds.ts';
import type { Sidecar } from './sidecar.ts';

/** Memory of its own in MiB: without the pages of the store, which the kernel may drop. */
export function ownMemoryMiB({ pid }: { readonly pid: number }): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/RssAnon:\s+(\d+)/.exec(status)?.[1]) / 1024;
}

export function openFiles({ pid }: { readonly pid: number }): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

export async function metricsOf(sidecar: Sidecar): Promise<string> {
  return (await fetch(sidecar.wsUrl.replace(/^ws/, 'http').replace(/acp$/, 'metrics'))).text();
}

/** A value of `/metrics`; NaN when it is not there. */
export async function metricOf(sidecar: Sidecar, sample: string): Promise<number> {
  const line = (await metricsOf(sidecar)).split('\n').find((entry) => entry.startsWith(`${sample} `));
  return Number(line?.slice(sample.length + 1));
}

/** How often a limit was met. */
export function boundHitsOf(sidecar: Sidecar, bound: BoundName): Promise<number> {
  return metricOf(sidecar, `acp_sidecar_bound_hits_total{bound="${bound}"}`);
}
