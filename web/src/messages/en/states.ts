export const states = {
  errorTitle: "This could not be loaded",
  unreachable: "The server cannot be reached.",
  forbiddenTitle: "You may not see this",
  forbidden: (need: string) =>
    `It needs the right “${need}”. An administrator can grant it under Access → Bindings.`,
  notFoundTitle: "Not found",
  notFound: "The address is wrong, or what it points to was removed.",
  toOverview: "To the overview",
  needRight: (need: string, where: string) =>
    `Needs the right “${need}”${where ? ` for ${where}` : ""}; you do not have it. An administrator can grant it.`,
  streamAway: (since: string) =>
    `No connection to the server since ${since}. What you see is from then; trying again…`,
  offline: (since: string) =>
    `This device is offline. What you see is the last known state${since ? `, of ${since}` : ""}.`,
  crashed: "This page failed. The rest of the console still works.",
  updateAvailable: "The server was updated.",
  reload: "Reload the page",
};
