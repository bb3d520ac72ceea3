export async function endAllGroups(_graceMs: number): Promise<void> {}
export function killAllGroups(): void {}
